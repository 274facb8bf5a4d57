//! The stable text form of the IR: what snapshots compare. Source locations are left out.

use std::fmt;

use super::{Block, Inst, Kernel, Origin, ParamKind, ValueId};

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}(", self.name)?;
        for (i, param) in self.params.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match param.kind {
                ParamKind::Pointer { dtype, strides, access, phase } => {
                    write!(f, "{}: {} {} *{dtype}", param.name, access.name(), phase.name())?;
                    if strides > 0 {
                        write!(f, " strides {strides}")?;
                    }
                }
                ParamKind::Scalar(dtype) => write!(f, "{}: {dtype}", param.name)?,
                ParamKind::Tensor { dtype, rank, tensor_box, access, phase } => {
                    write!(f, "{}: {} {} tensor<{dtype} {rank}d>", param.name, access.name(), phase.name())?;
                    write!(f, " box {tensor_box}")?;
                }
            }
        }
        writeln!(f, ") warps {} ctas_per_sm {} {{", self.warps, self.ctas_per_sm)?;
        for (i, tile) in self.tiles.iter().enumerate() {
            writeln!(
                f,
                "  shared{i} {}: {} [{}, {}] stages {} copies {} swizzle {} at {}",
                tile.name,
                tile.dtype,
                tile.rows,
                tile.cols,
                tile.stages_or_one(),
                tile.copies,
                tile.swizzle,
                tile.offset
            )?;
        }
        Text { kernel: self }.block(f, &self.body, 1)?;
        f.write_str("}\n")
    }
}

struct Text<'a> {
    kernel: &'a Kernel,
}

impl Text<'_> {
    fn block(&self, f: &mut fmt::Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
        block.insts.iter().try_for_each(|inst| self.inst(f, inst, depth))
    }

    fn inst(&self, f: &mut fmt::Formatter<'_>, inst: &Inst, depth: usize) -> fmt::Result {
        let pad = "  ".repeat(depth);
        f.write_str(&pad)?;
        for (i, &result) in inst.results.iter().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            write!(f, "{separator}{}: {}", self.name(result), self.kernel.ty(result))?;
        }
        if !inst.results.is_empty() {
            f.write_str(" = ")?;
        }
        f.write_str(inst.op.name)?;
        for (i, &operand) in inst.operands.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { " " }, self.name(operand))?;
        }
        for (i, (name, value)) in inst.attrs.iter().enumerate() {
            write!(f, "{}{name} = {value}", if i > 0 { ", " } else { " {" })?;
        }
        if inst.attrs.iter().next().is_some() {
            f.write_str("}")?;
        }
        for (i, block) in inst.blocks.iter().enumerate() {
            f.write_str(if i > 0 { " else" } else { "" })?;
            for &param in &block.params {
                write!(f, " ({}: {})", self.name(param), self.kernel.ty(param))?;
            }
            f.write_str(" {\n")?;
            self.block(f, block, depth + 1)?;
            write!(f, "{pad}}}")?;
        }
        f.write_str("\n")
    }

    fn name(&self, id: ValueId) -> String {
        let value = self.kernel.value(id);
        match (value.origin, &value.name) {
            (Origin::Param { index, field }, _) => {
                let param = &self.kernel.params[index].name;
                if field == 0 { format!("@{param}") } else { format!("@{param}.stride{}", field - 1) }
            }
            (_, Some(name)) => format!("%{}_{name}", id.0),
            (_, None) => format!("%{}", id.0),
        }
    }
}
