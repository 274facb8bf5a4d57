//! Several consecutive elements of a row of a shared tile, in one access of 8 or 16 bytes a lane.

use super::example::output;
use super::global::vector;
use super::index::lane_id;
use super::shared::shared;
use super::shared_element::{SharedElement, address};
use super::{Effect, Family, OpDef, Space};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Helper, axes, register_text};
use crate::dtype::Dtype;
use crate::handles::{Element, Handle, Vector};
use crate::ir::{Attrs, Swizzle, Type};
use crate::trace::{emit, emit_stmt};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "shared_vector", source: include_str!("shared_vector.rs"), ops: &[&LOAD, &STORE] };

/// Each lane moves 16 bytes from one row to another.
fn show() {
    let tile = shared::<f32>([2, 128]).swizzle(Swizzle::Xor16);
    let four = tile.at(0, lane_id() * 4).load_vector(4);
    tile.at(1, lane_id() * 4).store_vector(four);
    output(four.get(3));
}

/// Loads a vector.
pub static LOAD: OpDef = OpDef {
    name: "shared.load_vector",
    doc: "The `len` elements from (row, column) of a tile on, 8 or 16 bytes; the column is a multiple of `len`.",
    signature: |s| {
        s.count(3)?;
        let dtype = s.tile(0)?.dtype;
        place(s)?;
        match vector(dtype, s.attrs.int("len"))? {
            ty @ Type::Vector { .. } => Ok(vec![ty]),
            _ => Err("a vector has two elements or more: load one by `load()`".to_owned()),
        }
    },
    min_capability: 0,
    effects: &[Effect::Read(Space::Shared)],
    emit: Emit::Stmt(|cx: &mut Cx<'_, '_>| {
        let ty = cx.result_type(0);
        let helper = helpers(ty).0;
        cx.require(helper);
        let address = address(cx);
        let name = cx.result(0, "elements");
        cx.array(&name, ty);
        cx.line(&format!("{}({name}, {address});", helper.name));
    }),
    cost: |c| {
        let bytes = c.bytes(c.result(0));
        // A quarter of the lanes, 128 bytes, is served at a time.
        Cost { issue: bytes / 128, shared_read: bytes, ..Cost::NONE }
    },
    example: show,
};

/// Stores a vector.
pub static STORE: OpDef = OpDef {
    name: "shared.store_vector",
    doc: "Stores the elements of a vector, 8 or 16 bytes, from (row, column) of a tile on; the column is a multiple of \
          their number.",
    signature: |s| {
        s.count(4)?;
        let tile = s.tile(0)?.dtype;
        place(s)?;
        match s.operands[3] {
            Type::Vector { dtype, .. } if dtype == tile => Ok(vec![]),
            other => Err(format!("a tile of {tile} does not take {other}")),
        }
    },
    min_capability: 0,
    effects: &[Effect::Write(Space::Shared)],
    emit: Emit::Stmt(|cx: &mut Cx<'_, '_>| {
        let helper = helpers(cx.operand_type(3)).1;
        cx.require(helper);
        let (address, value) = (address(cx), cx.operand(3));
        cx.line(&format!("{}({address}, {value});", helper.name));
    }),
    cost: |c| {
        let bytes = c.bytes(c.operand(3));
        Cost { issue: bytes / 128, shared_written: bytes, ..Cost::NONE }
    },
    example: show,
};

fn place(s: &super::Signature<'_>) -> Result<(), String> {
    match s.operands[1..3] {
        [Type::Scalar(Dtype::I32), Type::Scalar(Dtype::I32)] => Ok(()),
        _ => Err("row and column are i32".to_owned()),
    }
}

macro_rules! helper_table {
    ($($load:ident $store:ident $name:literal $text:literal $count:literal $ptx:literal $list:literal $to:literal $from:literal $loaded:literal $stored:literal;)*) => {
        $(
            static $load: Helper = Helper {
                name: concat!("load_shared_", $name),
                text: concat!(
                    "__device__ __forceinline__ void load_shared_", $name, "(", $text, " (&v)[", $count, "], unsigned from) {\n",
                    "  asm volatile(\"ld.shared.", $ptx, " {", $list, "}, [", $from, "];\"\n",
                    "               : ", $loaded, " : \"r\"(from) : \"memory\");\n}"
                ),
            };
            static $store: Helper = Helper {
                name: concat!("store_shared_", $name),
                text: concat!(
                    "__device__ __forceinline__ void store_shared_", $name, "(unsigned to, const ", $text, " (&v)[", $count, "]) {\n",
                    "  asm volatile(\"st.shared.", $ptx, " [%0], {", $to, "};\"\n",
                    "               :: \"r\"(to), ", $stored, " : \"memory\");\n}"
                ),
            };
        )*
        /// The helpers that load and store a vector of type `ty`.
        fn helpers(ty: Type) -> (&'static Helper, &'static Helper) {
            match (register_text(ty), axes(ty)[0]) {
                $(($text, $count) => (&$load, &$store),)*
                // 64-bit integers have the same bits, signed or not.
                _ => (&LOAD_U64X2, &STORE_U64X2),
            }
        }
    };
}

helper_table! {
    LOAD_B32X2 STORE_B32X2 "x2" "unsigned" 2 "v2.b32" "%0, %1" "%1, %2" "%2"
        "\"=r\"(v[0]), \"=r\"(v[1])" "\"r\"(v[0]), \"r\"(v[1])";
    LOAD_B32X4 STORE_B32X4 "x4" "unsigned" 4 "v4.b32" "%0, %1, %2, %3" "%1, %2, %3, %4" "%4"
        "\"=r\"(v[0]), \"=r\"(v[1]), \"=r\"(v[2]), \"=r\"(v[3])" "\"r\"(v[0]), \"r\"(v[1]), \"r\"(v[2]), \"r\"(v[3])";
    LOAD_S32X2 STORE_S32X2 "x2" "int" 2 "v2.b32" "%0, %1" "%1, %2" "%2"
        "\"=r\"(v[0]), \"=r\"(v[1])" "\"r\"(v[0]), \"r\"(v[1])";
    LOAD_S32X4 STORE_S32X4 "x4" "int" 4 "v4.b32" "%0, %1, %2, %3" "%1, %2, %3, %4" "%4"
        "\"=r\"(v[0]), \"=r\"(v[1]), \"=r\"(v[2]), \"=r\"(v[3])" "\"r\"(v[0]), \"r\"(v[1]), \"r\"(v[2]), \"r\"(v[3])";
    LOAD_F32X2 STORE_F32X2 "x2" "float" 2 "v2.f32" "%0, %1" "%1, %2" "%2"
        "\"=f\"(v[0]), \"=f\"(v[1])" "\"f\"(v[0]), \"f\"(v[1])";
    LOAD_F32X4 STORE_F32X4 "x4" "float" 4 "v4.f32" "%0, %1, %2, %3" "%1, %2, %3, %4" "%4"
        "\"=f\"(v[0]), \"=f\"(v[1]), \"=f\"(v[2]), \"=f\"(v[3])" "\"f\"(v[0]), \"f\"(v[1]), \"f\"(v[2]), \"f\"(v[3])";
    LOAD_S64X2 STORE_S64X2 "x2" "long long" 2 "v2.b64" "%0, %1" "%1, %2" "%2"
        "\"=l\"(v[0]), \"=l\"(v[1])" "\"l\"(v[0]), \"l\"(v[1])";
    LOAD_U64X2 STORE_U64X2 "x2" "unsigned long long" 2 "v2.b64" "%0, %1" "%1, %2" "%2"
        "\"=l\"(v[0]), \"=l\"(v[1])" "\"l\"(v[0]), \"l\"(v[1])";
}

impl<T: Element> SharedElement<T> {
    /// The `len` elements from here on in the row, 8 or 16 bytes, in one access; the column must be a multiple of `len`.
    #[track_caller]
    pub fn load_vector(self, len: i32) -> Vector<T> {
        Vector::from_id(emit(&LOAD, &self.operands(), Attrs::none().with("len", len)))
    }

    /// Stores `vector` from here on in the row, in one access; the column must be a multiple of its elements.
    #[track_caller]
    pub fn store_vector(self, vector: Vector<T>) {
        let [tile, row, column] = self.operands();
        emit_stmt(&STORE, &[tile, row, column, vector.id()], Attrs::none());
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::ops::example::kernel;
    use crate::prelude::*;
    use crate::target::Target;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                shared.load_vector
                  float elements[4];
                  load_shared_x4(elements, tile0 + ((lane * 4 * 4) ^ (0 % 8 * 16)));
                shared.store_vector
                  store_shared_x4(tile0 + 512 + ((lane * 4 * 4) ^ (1 % 8 * 16)), elements);
            "#]],
        );
    }

    #[test]
    fn every_element_type_has_its_registers() {
        let kernel = kernel("k", || {
            let [row, column] = [0, 1].map(|_| lane::id());
            let keys = shared::<bf16>([32, 64]);
            keys.at(row, column * 8).store_vector(keys.at(row, 0).load_vector(8));
            let bytes = shared::<e4m3>([32, 64]);
            bytes.at(row, 0).store_vector(bytes.at(row, 8).load_vector(8));
            let long = shared::<u64>([32, 4]);
            long.at(row, 0).store_vector(long.at(row, 2).load_vector(2));
        });
        let cuda = kernel.unwrap().cuda(Target::Sm120a).unwrap().source;
        for text in ["unsigned elements[4];", "unsigned elements_2[2];", "unsigned long long elements_3[2];"] {
            assert!(cuda.contains(text), "{text} in {cuda}");
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        let errors = kernel("k", || {
            shared::<f32>([32, 64]).at(0, 0).load_vector(3);
        });
        let message = errors.unwrap_err().to_string();
        assert!(message.contains("a vector access moves 8 or 16 bytes a lane, not 3 elements of f32"), "{message}");
    }
}
