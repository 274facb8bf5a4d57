//! Global memory: addresses, loads and stores of one element or of a vector a lane.
//!
//! Loads are volatile assembly: the compiler may otherwise hoist a load of constant memory above the PDL wait.

use super::example::{memory, output, rows};
use super::index::{cta_y, lane_id};
use super::{Effect, Family, OpDef, Signature, Space};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, axes, ctype, prec, register_text};
use crate::dtype::Dtype;
use crate::handles::{
    AccessMode, Element, Handle, Integer, Mask, Place, Read, Readable, Rows, Scalar, Slice, Stored, Vector, Writable,
    WritePart, bf16,
};
use crate::ir::{Attrs, Inst, Type, ValueId};
use crate::trace::{emit, emit_stmt};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "global", source: include_str!("global.rs"), ops: &[&OFFSET, &ROW, &PAST, &LOAD, &STORE] };

/// The address some elements further.
pub static OFFSET: OpDef = OpDef {
    name: "global.offset",
    doc: "The address `index` elements after `place`, in 64 bits.",
    signature: |s| {
        s.count(2)?;
        match s.operands {
            [Type::Global(dtype), Type::Scalar(index)] if integer(*index) => Ok(vec![Type::Global(*dtype)]),
            [place, index] => Err(format!("a place and an integer, not {place} and {index}")),
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx| {
        let (place, index) = (cx.operand(0), cx.operand(1));
        Expr::binary(prec::SUM, "+", &place, &index)
    }),
    cost: |_| Cost::issue(2),
    example: || output(memory::<i32, Read>("lens").at(lane_id()).at(1).load()),
};

/// The address of a row.
pub static ROW: OpDef = OpDef {
    name: "global.row",
    doc: "The address of row `index` of rows that lie `stride` elements apart, in 64 bits; a 32-bit index counts from 0, \
          unsigned.",
    signature: |s| {
        s.count(3)?;
        match s.operands {
            [Type::Global(dtype), Type::Scalar(index), Type::Scalar(Dtype::I64)] if integer(*index) => {
                Ok(vec![Type::Global(*dtype)])
            }
            [place, index, stride] => {
                Err(format!("a place, an integer and an i64 stride, not {place}, {index} and {stride}"))
            }
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx| {
        let (place, offset) = (cx.operand(0), offset(cx, cx.inst()));
        Expr::binary(prec::SUM, "+", &place, &offset)
    }),
    cost: |_| Cost::issue(3),
    example: || output(rows::<f32, Read>("weights").row(cta_y()).load()),
};

/// Where a place lies between boundaries.
pub static PAST: OpDef = OpDef {
    name: "global.elements_past",
    doc: "How many elements a place lies past a multiple of `bytes` bytes, a power of two.",
    signature: |s| {
        s.count(1)?;
        let bytes = s.attrs.int("bytes");
        match s.operands[0] {
            Type::Global(dtype) if bytes.count_ones() == 1 && bytes >= dtype.size() as i64 => {
                Ok(vec![Type::Scalar(Dtype::I32)])
            }
            Type::Global(dtype) => {
                Err(format!("a boundary is a power of two and holds an element of {dtype}; {bytes} bytes do not"))
            }
            other => Err(format!("a place lies past a boundary, not {other}")),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(|cx| {
        let size = cx.operand_type(0).dtype().map_or(1, Dtype::size);
        let address = Expr::prefix("(unsigned long long)", &cx.operand(0));
        let bytes = Expr::primary(cx.inst().attrs.int("bytes").to_string());
        let past = Expr::prefix("(int)", &Expr::binary(prec::PRODUCT, "%", &address, &bytes));
        if size == 1 { past } else { Expr::binary(prec::PRODUCT, "/", &past, &Expr::primary(size.to_string())) }
    }),
    cost: |_| Cost::issue(2),
    example: || output(memory::<f32, Read>("scores").at(lane_id()).elements_past(16)),
};

/// Loads an element or a vector.
pub static LOAD: OpDef = OpDef {
    name: "global.load",
    doc: "The element at a place, or the `len` elements from it on; with a mask, only where it holds, else `otherwise`.",
    signature: |s| {
        let len = s.attrs.int("len");
        let loaded = |dtype: Dtype| vector(dtype, len);
        match *s.operands {
            [Type::Global(dtype)] => Ok(vec![loaded(dtype)?]),
            [Type::Global(dtype), Type::Scalar(Dtype::Bool), Type::Scalar(otherwise)] if dtype == otherwise => {
                Ok(vec![loaded(dtype)?])
            }
            _ => Err(misused("loads from a place", s)),
        }
    },
    min_capability: 0,
    effects: &[Effect::Read(Space::Global)],
    emit: Emit::Stmt(print_load),
    cost: |c| Cost { issue: 1, global_read: c.bytes(c.result(0)), ..Cost::NONE },
    example: || {
        let keys = memory::<bf16, Read>("keys").at(lane_id() * 8);
        memory::<bf16, WritePart>("copy").at(lane_id() * 8).store_vector(keys.load_vector(8));
        output(memory::<i32, Read>("lens").at(lane_id()).load_if(lane_id().lt(4), 0));
        let scores = memory::<f32, Read>("scores").at(lane_id() * 4).load_vector_if(4, lane_id().lt(8), 0.0);
        memory::<f32, WritePart>("high").at(lane_id()).store(scores.get(3));
    },
};

/// Stores an element or a vector.
pub static STORE: OpDef = OpDef {
    name: "global.store",
    doc: "Stores an element at a place, or a vector from it on; with a mask, only where it holds.",
    signature: |s| match *s.operands {
        [Type::Global(place), value] | [Type::Global(place), value, Type::Scalar(Dtype::Bool)]
            if value.dtype() == Some(place) && matches!(value, Type::Scalar(_) | Type::Vector { .. }) =>
        {
            Ok(vec![])
        }
        _ => Err(misused("stores to a place", s)),
    },
    min_capability: 0,
    effects: &[Effect::Write(Space::Global)],
    emit: Emit::Stmt(print_store),
    cost: |c| Cost { issue: 1, global_written: c.bytes(c.operand(1)), ..Cost::NONE },
    example: || {
        let scores = memory::<f32, WritePart>("scores").at(lane_id());
        scores.store_if(lane_id().lt(4), 1.0f32);
    },
};

/// What an `offset` or a `row` adds to the place, in elements.
fn offset(cx: &mut Cx<'_, '_>, inst: &Inst) -> Expr {
    let index = cx.expr(inst.operands[1]);
    let Some(&stride) = inst.operands.get(2) else { return index };
    let stride = cx.expr(stride);
    // C++ widens an unsigned factor to the 64 bits of the other with no sign to extend.
    let def = cx.inlined_value(inst.operands[1]);
    let of = |op: &'static OpDef| def.is_some_and(|def| std::ptr::eq(def.op, op));
    let index = match index.to_string().strip_prefix("(int)") {
        Some(unsigned) if of(&super::index::INDEX) => Expr::primary(unsigned),
        _ if of(&super::arith::CONST) || cx.kernel().ty(inst.operands[1]) != Type::Scalar(Dtype::I32) => index,
        _ => Expr::prefix("(unsigned)", &index),
    };
    Expr::binary(prec::PRODUCT, "*", &index, &stride)
}

fn integer(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64)
}

fn misused(what: &str, s: &Signature<'_>) -> String {
    let types: Vec<_> = s.operands.iter().map(ToString::to_string).collect();
    format!("{what}: the operands do not fit together ({})", types.join(", "))
}

/// One element for `len` 1, else a vector of a size that one access moves.
pub(super) fn vector(dtype: Dtype, len: i64) -> Result<Type, String> {
    match (len, len * dtype.size() as i64) {
        (1, _) => Ok(Type::Scalar(dtype)),
        (_, 8 | 16) => Ok(Type::Vector { dtype, len: len as u32 }),
        (_, bytes) => {
            Err(format!("a vector access moves 8 or 16 bytes a lane, not {len} elements of {dtype} ({bytes} bytes)"))
        }
    }
}

macro_rules! helpers {
    ($($visible:vis $name:ident $function:literal $text:literal;)*) => {$(
        $visible static $name: Helper = Helper { name: $function, text: $text };
    )*};
}

helpers! {
    LOAD_I32 "load" "\
__device__ __forceinline__ int load(const int* p) {
  int v;
  asm volatile(\"ld.global.s32 %0, [%1];\" : \"=r\"(v) : \"l\"(p) : \"memory\");
  return v;
}";
    LOAD_U32 "load" "\
__device__ __forceinline__ unsigned load(const unsigned* p) {
  unsigned v;
  asm volatile(\"ld.global.u32 %0, [%1];\" : \"=r\"(v) : \"l\"(p) : \"memory\");
  return v;
}";
    LOAD_I64 "load" "\
__device__ __forceinline__ long long load(const long long* p) {
  long long v;
  asm volatile(\"ld.global.s64 %0, [%1];\" : \"=l\"(v) : \"l\"(p) : \"memory\");
  return v;
}";
    LOAD_U64 "load" "\
__device__ __forceinline__ unsigned long long load(const unsigned long long* p) {
  unsigned long long v;
  asm volatile(\"ld.global.u64 %0, [%1];\" : \"=l\"(v) : \"l\"(p) : \"memory\");
  return v;
}";
    LOAD_F32 "load" "\
__device__ __forceinline__ float load(const float* p) {
  float v;
  asm volatile(\"ld.global.f32 %0, [%1];\" : \"=f\"(v) : \"l\"(p) : \"memory\");
  return v;
}";
    LOAD_16 "load" "\
__device__ __forceinline__ unsigned short load(const unsigned short* p) {
  unsigned short v;
  asm volatile(\"ld.global.u16 %0, [%1];\" : \"=h\"(v) : \"l\"(p) : \"memory\");
  return v;
}";
    LOAD_8 "load" "\
__device__ __forceinline__ unsigned char load(const unsigned char* p) {
  unsigned v;
  asm volatile(\"ld.global.u8 %0, [%1];\" : \"=r\"(v) : \"l\"(p) : \"memory\");
  return v;
}";
    LOAD_X2_B32 "load_x2" "\
__device__ __forceinline__ void load_x2(unsigned (&v)[2], const void* p) {
  asm volatile(\"ld.global.v2.b32 {%0, %1}, [%2];\" : \"=r\"(v[0]), \"=r\"(v[1]) : \"l\"(p) : \"memory\");
}";
    LOAD_X4_B32 "load_x4" "\
__device__ __forceinline__ void load_x4(unsigned (&v)[4], const void* p) {
  asm volatile(\"ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\"
               : \"=r\"(v[0]), \"=r\"(v[1]), \"=r\"(v[2]), \"=r\"(v[3]) : \"l\"(p) : \"memory\");
}";
    LOAD_X2_S32 "load_x2" "\
__device__ __forceinline__ void load_x2(int (&v)[2], const void* p) {
  asm volatile(\"ld.global.v2.s32 {%0, %1}, [%2];\" : \"=r\"(v[0]), \"=r\"(v[1]) : \"l\"(p) : \"memory\");
}";
    LOAD_X4_S32 "load_x4" "\
__device__ __forceinline__ void load_x4(int (&v)[4], const void* p) {
  asm volatile(\"ld.global.v4.s32 {%0, %1, %2, %3}, [%4];\"
               : \"=r\"(v[0]), \"=r\"(v[1]), \"=r\"(v[2]), \"=r\"(v[3]) : \"l\"(p) : \"memory\");
}";
    pub(super) LOAD_X2_F32 "load_x2" "\
__device__ __forceinline__ void load_x2(float (&v)[2], const float* p) {
  asm volatile(\"ld.global.v2.f32 {%0, %1}, [%2];\" : \"=f\"(v[0]), \"=f\"(v[1]) : \"l\"(p) : \"memory\");
}";
    LOAD_X4_F32 "load_x4" "\
__device__ __forceinline__ void load_x4(float (&v)[4], const float* p) {
  asm volatile(\"ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\"
               : \"=f\"(v[0]), \"=f\"(v[1]), \"=f\"(v[2]), \"=f\"(v[3]) : \"l\"(p) : \"memory\");
}";
    LOAD_X2_B64 "load_x2" "\
__device__ __forceinline__ void load_x2(long long (&v)[2], const void* p) {
  asm volatile(\"ld.global.v2.b64 {%0, %1}, [%2];\" : \"=l\"(v[0]), \"=l\"(v[1]) : \"l\"(p) : \"memory\");
}";
    STORE_X2_B32 "store_x2" "\
__device__ __forceinline__ void store_x2(void* p, const unsigned (&v)[2]) {
  asm volatile(\"st.global.v2.b32 [%0], {%1, %2};\" :: \"l\"(p), \"r\"(v[0]), \"r\"(v[1]) : \"memory\");
}";
    STORE_X4_B32 "store_x4" "\
__device__ __forceinline__ void store_x4(void* p, const unsigned (&v)[4]) {
  asm volatile(\"st.global.v4.b32 [%0], {%1, %2, %3, %4};\"
               :: \"l\"(p), \"r\"(v[0]), \"r\"(v[1]), \"r\"(v[2]), \"r\"(v[3]) : \"memory\");
}";
    STORE_X2_S32 "store_x2" "\
__device__ __forceinline__ void store_x2(void* p, const int (&v)[2]) {
  asm volatile(\"st.global.v2.b32 [%0], {%1, %2};\" :: \"l\"(p), \"r\"(v[0]), \"r\"(v[1]) : \"memory\");
}";
    STORE_X4_S32 "store_x4" "\
__device__ __forceinline__ void store_x4(void* p, const int (&v)[4]) {
  asm volatile(\"st.global.v4.b32 [%0], {%1, %2, %3, %4};\"
               :: \"l\"(p), \"r\"(v[0]), \"r\"(v[1]), \"r\"(v[2]), \"r\"(v[3]) : \"memory\");
}";
    STORE_X2_F32 "store_x2" "\
__device__ __forceinline__ void store_x2(float* p, const float (&v)[2]) {
  asm volatile(\"st.global.v2.f32 [%0], {%1, %2};\" :: \"l\"(p), \"f\"(v[0]), \"f\"(v[1]) : \"memory\");
}";
    STORE_X4_F32 "store_x4" "\
__device__ __forceinline__ void store_x4(float* p, const float (&v)[4]) {
  asm volatile(\"st.global.v4.f32 [%0], {%1, %2, %3, %4};\"
               :: \"l\"(p), \"f\"(v[0]), \"f\"(v[1]), \"f\"(v[2]), \"f\"(v[3]) : \"memory\");
}";
    STORE_X2_B64 "store_x2" "\
__device__ __forceinline__ void store_x2(void* p, const long long (&v)[2]) {
  asm volatile(\"st.global.v2.b64 [%0], {%1, %2};\" :: \"l\"(p), \"l\"(v[0]), \"l\"(v[1]) : \"memory\");
}";
}

macro_rules! masked_loads {
    ($($name:ident $ty:literal;)*) => {$(
        static $name: Helper = Helper {
            name: "load_if",
            text: concat!(
                "// The address is computed beforehand, so that the load is not late: the compiler would do it where the mask holds.\n",
                "__device__ __forceinline__ ", $ty, " load_if(bool mask, const ", $ty, "* p, ", $ty, " otherwise) {\n",
                "  asm volatile(\"\" : \"+l\"(p));\n",
                "  return mask ? load(p) : otherwise;\n}"
            ),
        };
    )*};
}

masked_loads! {
    LOAD_IF_I32 "int";
    LOAD_IF_U32 "unsigned";
    LOAD_IF_I64 "long long";
    LOAD_IF_U64 "unsigned long long";
    LOAD_IF_F32 "float";
    LOAD_IF_16 "unsigned short";
    LOAD_IF_8 "unsigned char";
}

/// The helpers that load an element, and that do so where a mask holds.
fn load_helpers(dtype: Dtype) -> (&'static Helper, &'static Helper) {
    match dtype {
        Dtype::I32 => (&LOAD_I32, &LOAD_IF_I32),
        Dtype::U32 => (&LOAD_U32, &LOAD_IF_U32),
        Dtype::I64 => (&LOAD_I64, &LOAD_IF_I64),
        Dtype::U64 => (&LOAD_U64, &LOAD_IF_U64),
        Dtype::F32 => (&LOAD_F32, &LOAD_IF_F32),
        Dtype::Bf16 | Dtype::F16 => (&LOAD_16, &LOAD_IF_16),
        Dtype::Bool | Dtype::E4m3 | Dtype::U8 => (&LOAD_8, &LOAD_IF_8),
    }
}

/// The helpers that load and store a vector held in `registers` of type `text`.
fn vector_helpers(text: &str, registers: u32) -> (&'static Helper, &'static Helper) {
    match (text, registers) {
        ("float", 2) => (&LOAD_X2_F32, &STORE_X2_F32),
        ("float", _) => (&LOAD_X4_F32, &STORE_X4_F32),
        ("int", 2) => (&LOAD_X2_S32, &STORE_X2_S32),
        ("int", _) => (&LOAD_X4_S32, &STORE_X4_S32),
        ("long long" | "unsigned long long", _) => (&LOAD_X2_B64, &STORE_X2_B64),
        (_, 2) => (&LOAD_X2_B32, &STORE_X2_B32),
        _ => (&LOAD_X4_B32, &STORE_X4_B32),
    }
}

fn print_load(cx: &mut Cx<'_, '_>) {
    let ty = cx.result_type(0);
    let masked = cx.inst().operands.len() == 3;
    let place = cx.operand(0);
    let hint = format!("{}_value", root(cx, 0));
    let Type::Vector { dtype, .. } = ty else {
        let dtype = ty.dtype().unwrap_or(Dtype::I32);
        let (load, load_if) = load_helpers(dtype);
        cx.require(load);
        let value = if masked {
            cx.require(load_if);
            let (mask, otherwise) = (cx.operand(1), cx.operand(2));
            Expr::call("load_if", &[&mask, &place, &otherwise])
        } else {
            Expr::call("load", &[&place])
        };
        let name = cx.result(0, &hint);
        return cx.line(&format!("const {} {name} = {value};", ctype(dtype)));
    };
    let registers = axes(ty)[0];
    let (helper, _) = vector_helpers(register_text(ty), registers);
    cx.require(helper);
    let name = cx.result(0, &hint);
    let call = format!("{}({name}, {place});", helper.name);
    if masked {
        let (mask, otherwise) = (cx.operand(1), cx.operand(2));
        let otherwise = packed(&otherwise, dtype);
        let all = vec![otherwise; registers as usize].join(", ");
        cx.line(&format!("{} {name}[{registers}] = {{{all}}};", register_text(ty)));
        cx.line(&format!("if ({mask}) {call}"));
    } else {
        cx.array(&name, ty);
        cx.line(&call);
    }
}

/// A 32-bit register full of an element.
fn packed(element: &Expr, dtype: Dtype) -> String {
    match (dtype.size(), element.to_string().as_str()) {
        (1 | 2, "0") => "0".to_owned(),
        (2, _) => format!("{} * 0x10001u", element.at_least(prec::PRODUCT)),
        (1, _) => format!("{} * 0x1010101u", element.at_least(prec::PRODUCT)),
        (_, text) => text.to_owned(),
    }
}

fn print_store(cx: &mut Cx<'_, '_>) {
    let ty = cx.operand_type(1);
    let value = cx.operand(1);
    let guard = if cx.inst().operands.len() == 3 { format!("if ({}) ", cx.operand(2)) } else { String::new() };
    if let Type::Vector { .. } = ty {
        let place = cx.operand(0);
        let (_, helper) = vector_helpers(register_text(ty), axes(ty)[0]);
        cx.require(helper);
        return cx.line(&format!("{guard}{}({place}, {value});", helper.name));
    }
    let target = target(cx, cx.inst().operands[0]);
    cx.line(&format!("{guard}{target} = {value};"));
}

/// A place as the target of an assignment: `p[i]` or `*p`.
fn target(cx: &mut Cx<'_, '_>, place: ValueId) -> Expr {
    let mut base = place;
    let mut offsets = Vec::new();
    // Sums of offsets are in 64 bits only from the first 64-bit one on.
    let mut wide = false;
    while let Some(inst) = cx.inlined_value(base)
        && (std::ptr::eq(inst.op, &OFFSET) || std::ptr::eq(inst.op, &ROW))
    {
        wide = std::ptr::eq(inst.op, &ROW)
            || matches!(cx.kernel().ty(inst.operands[1]).dtype(), Some(Dtype::I64 | Dtype::U64));
        offsets.push(inst);
        base = inst.operands[0];
    }
    offsets.reverse();
    let mut place = cx.expr(base);
    if offsets.is_empty() {
        return Expr::prefix("*", &place);
    }
    let mut offsets: Vec<Expr> = offsets.into_iter().map(|inst| offset(cx, inst)).collect();
    if !wide {
        let last = offsets.split_off(offsets.len() - 1);
        place = offsets.iter().fold(place, |sum, offset| Expr::binary(prec::SUM, "+", &sum, offset));
        offsets = last;
    }
    let index = offsets.into_iter().reduce(|a, b| Expr::binary(prec::SUM, "+", &a, &b));
    place.subscript(&index.expect("there is at least one offset"))
}

/// The name of the argument that operand `i` points into.
fn root(cx: &Cx<'_, '_>, i: usize) -> String {
    cx.pointee(cx.inst().operands[i]).map_or_else(|| "loaded".to_owned(), |param| param.name.clone())
}

impl<T: Element, A: AccessMode> Slice<T, A> {
    /// Element `index`.
    #[track_caller]
    pub fn at<I: Integer>(self, index: impl Into<Scalar<I>>) -> Place<T, A> {
        self.start().at(index)
    }
}

/// Arguments that consist of rows.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no rows",
    label = "it is one run of elements: take one by `.at(index)`, or declare the parameter `Rows<T>`"
)]
pub trait HasRows {}

impl<T, A> Slice<T, A> {
    /// Only [`Rows`] have rows: a call of this one says so.
    #[doc(hidden)]
    pub fn row<I>(self, _: I) -> Place<T, A>
    where
        Self: HasRows,
    {
        self.start()
    }
}

impl<T: Element, A: AccessMode> Rows<T, A> {
    /// The start of row `index`, which counts from 0; the address is computed in 64 bits.
    #[track_caller]
    pub fn row<I: Integer>(self, index: impl Into<Scalar<I>>) -> Place<T, A> {
        Place::from_id(emit(&ROW, &[self.pointer(), index.into().id(), self.stride().id()], Attrs::none()))
    }

    /// The rows without their first `count` elements.
    #[track_caller]
    pub fn skip<I: Integer>(self, count: impl Into<Scalar<I>>) -> Rows<T, A> {
        self.moved_to(emit(&OFFSET, &[self.pointer(), count.into().id()], Attrs::none()))
    }
}

impl<T: Element, A: AccessMode> Place<T, A> {
    /// The place `index` elements further.
    #[track_caller]
    pub fn at<I: Integer>(self, index: impl Into<Scalar<I>>) -> Place<T, A> {
        Place::from_id(emit(&OFFSET, &[self.id(), index.into().id()], Attrs::none()))
    }

    /// The element here.
    #[track_caller]
    pub fn load(self) -> Scalar<T>
    where
        A: Readable,
    {
        Scalar::from_id(emit(&LOAD, &[self.id()], Attrs::none().with("len", 1)))
    }

    /// The element here where `mask` holds, else `otherwise`; memory is not touched where it does not hold.
    #[track_caller]
    pub fn load_if(self, mask: Mask, otherwise: impl Into<Scalar<T>>) -> Scalar<T>
    where
        A: Readable,
    {
        let otherwise = otherwise.into();
        Scalar::from_id(emit(&LOAD, &[self.id(), mask.id(), otherwise.id()], Attrs::none().with("len", 1)))
    }

    /// How many elements this place lies past a multiple of `bytes` bytes, a power of two: 0 where a vector of that size
    /// may be accessed.
    #[track_caller]
    pub fn elements_past(self, bytes: i32) -> Scalar<i32> {
        Scalar::from_id(emit(&PAST, &[self.id()], Attrs::none().with("bytes", bytes)))
    }

    /// The `len` elements from here on, 8 or 16 bytes, in one access; the address must be a multiple of the size.
    #[track_caller]
    pub fn load_vector(self, len: i32) -> Vector<T>
    where
        A: Readable,
    {
        Vector::from_id(emit(&LOAD, &[self.id()], Attrs::none().with("len", len)))
    }

    /// The `len` elements from here on as by [`Place::load_vector`] where `mask` holds, else `len` times `otherwise`; memory
    /// is not touched where it does not hold.
    #[track_caller]
    pub fn load_vector_if(self, len: i32, mask: Mask, otherwise: impl Into<Scalar<T>>) -> Vector<T>
    where
        A: Readable,
    {
        let otherwise = otherwise.into();
        Vector::from_id(emit(&LOAD, &[self.id(), mask.id(), otherwise.id()], Attrs::none().with("len", len)))
    }

    /// Stores `value` here.
    #[track_caller]
    pub fn store(self, value: impl Stored<T>)
    where
        A: Writable,
    {
        emit_stmt(&STORE, &[self.id(), value.stored().id()], Attrs::none());
    }

    /// Stores `value` here where `mask` holds.
    #[track_caller]
    pub fn store_if(self, mask: Mask, value: impl Stored<T>)
    where
        A: Writable,
    {
        emit_stmt(&STORE, &[self.id(), value.stored().id(), mask.id()], Attrs::none());
    }

    /// Stores `vector` from here on, in one access; the address must be a multiple of its size.
    #[track_caller]
    pub fn store_vector(self, vector: Vector<T>)
    where
        A: Writable,
    {
        emit_stmt(&STORE, &[self.id(), vector.id()], Attrs::none());
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                global.offset
                  const int lane = threadIdx.x % 32;
                  const int lens_value = load(lens + lane + 1);
                  *out = lens_value;
                global.row
                  const float weights_value = load(weights + blockIdx.y * weights_stride);
                  *out = weights_value;
                global.elements_past
                  const int lane = threadIdx.x % 32;
                  *out = (int)((unsigned long long)(scores + lane) % 16) / 4;
                global.load
                  unsigned keys_value[4];
                  load_x4(keys_value, keys + lane * 8);
                  const int lens_value = load_if(lane < 4, lens + lane, 0);
                  float scores_value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                  if (lane < 8) load_x4(scores_value, scores + lane * 4);
                global.store
                  if (lane < 4) scores[lane] = 1.0f;
            "#]],
        );
    }
}
