use crate::ir::Access;

/// What a kernel does to a pointer argument's memory, as a type: `Slice<f32, WriteAll>`.
pub trait AccessMode: Copy + 'static {
    /// The declaration.
    const ACCESS: Access;
}

/// Arguments that may be loaded from.
#[diagnostic::on_unimplemented(
    message = "this argument is declared `{Self}`: the kernel may not load from it",
    note = "declare it `#[read]` or `#[read_write]`"
)]
pub trait Readable: AccessMode {}

/// Arguments that may be stored to.
#[diagnostic::on_unimplemented(
    message = "this argument is declared `{Self}`: the kernel may not store to it",
    note = "declare it `#[write_all]`, `#[write_part]` or `#[read_write]`"
)]
pub trait Writable: AccessMode {}

macro_rules! modes {
    ($($(#[doc = $doc:literal])* $mode:ident: $($class:ident)*;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $mode;

        impl AccessMode for $mode {
            const ACCESS: Access = Access::$mode;
        }

        $(#[diagnostic::do_not_recommend]
        impl $class for $mode {})*
    )*};
}

modes! {
    /// The kernel only reads the memory.
    Read: Readable;
    /// The kernel writes all of what the launch covers and reads none.
    WriteAll: Writable;
    /// The kernel writes parts, leaves the rest as it was, and reads none.
    WritePart: Writable;
    /// The kernel reads and writes the memory.
    ReadWrite: Readable Writable;
}
