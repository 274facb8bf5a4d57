//! Walks a kernel and prints it.

use std::collections::HashMap;

use super::emit::{Cx, Emit, scalar_text};
use super::expr::Expr;
use super::helper::Helper;
use super::names::{Names, words};
use super::plan::Plan;
use super::reserved::declared;
use super::writer::Writer;
use crate::dtype::Dtype;
use crate::ir::{Access, Block, Inst, Kernel, Origin, Param, ParamKind, Type, ValueId};
use crate::loc::Loc;
use crate::ops::{arith, control, index};

pub struct Printer<'k> {
    pub kernel: &'k Kernel,
    pub out: Writer,
    pub names: Names,
    plan: Plan<'k>,
    named: HashMap<ValueId, String>,
    helpers: Vec<&'static Helper>,
    pub uses_lane: bool,
    pub uses_warp: bool,
    pub uses_thread: bool,
}

/// A kernel's text.
pub struct Printed {
    pub source: String,
    /// The name of the entry in it.
    pub entry: String,
    /// For each line, where the author wrote it.
    pub lines: Vec<Option<Loc>>,
}

/// Prints `kernel`. What its text calls or names besides the author's names (device functions, types, built-ins) is
/// known once there is a text: a first one, which gives nobody a name, says which names are not to be given.
pub fn print(kernel: &Kernel) -> Printed {
    let (draft, params) = Printer::run(kernel, Names::placeholders());
    let ours = ["thread", "lane", "warp", "shared", "shared_memory"].map(str::to_owned);
    let parameters = params.iter().map(|(text, _)| text.as_str());
    let used = draft.out.lines().chain(parameters).flat_map(words).map(str::to_owned);
    let reserved: Vec<String> = used.chain(ours).collect();

    let at_file_scope = draft.helpers.iter().flat_map(|helper| functions(helper.text));
    let at_file_scope = at_file_scope.chain(draft.declarations().flat_map(words)).map(str::to_owned);
    let mut entries = Names::new(reserved.iter().cloned().chain(at_file_scope).chain(declared()));
    let entry = entries.take(&kernel.name);

    let (printer, params) = Printer::run(kernel, Names::new(reserved));
    printer.assemble(entry, &params)
}

/// The functions that a text defines or calls.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let heads = text.split('(').map(|before| {
        let name = before.trim_end().rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &before.trim_end()[name.map_or(0, |end| end + 1)..]
    });
    heads.filter(|name| !name.is_empty())
}

impl<'k> Printer<'k> {
    /// Prints parameters and body; returns the declarations of the parameters.
    fn run(kernel: &'k Kernel, names: Names) -> (Self, Vec<(String, Loc)>) {
        let mut printer = Printer {
            kernel,
            out: Writer::default(),
            names,
            plan: Plan::new(kernel),
            named: HashMap::new(),
            helpers: Vec::new(),
            uses_lane: false,
            uses_warp: false,
            uses_thread: false,
        };
        let params = printer.params();
        printer.out.indent();
        printer.insts(&kernel.body);
        printer.out.outdent();
        (printer, params)
    }

    /// Names the parameters; returns their declarations.
    fn params(&mut self) -> Vec<(String, Loc)> {
        let mut declared = Vec::new();
        for param in &self.kernel.params {
            match param.kind {
                ParamKind::Pointer { dtype, strides, access, .. } => {
                    let constant = if access == Access::Read { "const " } else { "" };
                    let name = self.names.take(&param.name);
                    declared.push((format!("{constant}{}* {name}", ctype(dtype)), param.loc));
                    for stride in 0..strides {
                        let suffix = if strides == 1 { String::new() } else { stride.to_string() };
                        let name = self.names.take(&format!("{name}_stride{suffix}"));
                        declared.push((format!("long long {name}"), param.loc));
                    }
                }
                ParamKind::Tensor { .. } => {
                    let name = self.names.take(&param.name);
                    declared.push((format!("const __grid_constant__ TensorMap {name}"), param.loc));
                }
                ParamKind::Scalar(dtype) => {
                    let name = self.names.take(&param.name);
                    declared.push((format!("{} {name}", ctype(dtype)), param.loc));
                }
            }
        }
        let mut texts = declared.iter().map(|(text, _)| text.rsplit(' ').next().unwrap_or_default().to_owned());
        for (i, value) in self.kernel.values.iter().enumerate() {
            if matches!(value.origin, Origin::Param { .. })
                && let Some(name) = texts.next()
            {
                self.named.insert(ValueId(i as u32), name);
            }
        }
        declared
    }

    /// The types that the text declares.
    fn declarations(&self) -> impl Iterator<Item = &'static str> {
        let typedefs = [
            (Dtype::Bf16, "typedef unsigned short bf16;"),
            (Dtype::F16, "typedef unsigned short f16;"),
            (Dtype::E4m3, "typedef unsigned char e4m3;"),
        ];
        let maps = self.kernel.params.iter().any(|param| matches!(param.kind, ParamKind::Tensor { .. }));
        let map = "struct __align__(128) TensorMap { unsigned long long bytes[16]; };";
        typedefs.into_iter().filter(|(dtype, _)| self.mentions(*dtype)).map(|(_, text)| text).chain(maps.then_some(map))
    }

    /// Everything around the body: what it turned out to need.
    fn assemble(self, entry: String, params: &[(String, Loc)]) -> Printed {
        let kernel = self.kernel;
        let mut out = Writer::default();
        self.declarations().for_each(|text| out.line(text, None));
        for helper in &self.helpers {
            out.gap();
            out.line(helper.text, None);
        }
        out.gap();
        if !kernel.doc.is_empty() {
            out.comment(&kernel.doc, None);
        }
        out.line(
            &format!("extern \"C\" __global__ void __launch_bounds__({}, {})", kernel.threads(), kernel.ctas_per_sm),
            Some(kernel.loc),
        );
        let head = format!("{entry}(");
        for (i, (param, loc)) in params.iter().enumerate() {
            let head = if i == 0 { head.clone() } else { " ".repeat(head.len()) };
            let tail = if i + 1 == params.len() { ") {" } else { "," };
            out.line(&format!("{head}{param}{tail}"), Some(*loc));
        }
        if params.is_empty() {
            out.line(&format!("{head}) {{"), Some(kernel.loc));
        }
        out.indent();
        if !kernel.tiles.is_empty() {
            out.line("extern __shared__ __align__(1024) unsigned char shared_memory[];", None);
            out.line("const unsigned shared = (unsigned)__cvta_generic_to_shared(shared_memory);", None);
        }
        if self.uses_thread {
            out.line("const int thread = threadIdx.x;", None);
        }
        if self.uses_warp {
            out.line("const int warp = threadIdx.x / 32;", None);
        }
        if self.uses_lane {
            out.line("const int lane = threadIdx.x % 32;", None);
        }
        out.outdent();
        out.append(self.out);
        out.line("}", None);
        let (source, lines) = out.finish();
        Printed { source, entry, lines }
    }

    fn mentions(&self, dtype: Dtype) -> bool {
        let name = dtype.name();
        self.kernel.params.iter().any(|p| match p.kind {
            ParamKind::Pointer { dtype: d, .. } | ParamKind::Tensor { dtype: d, .. } | ParamKind::Scalar(d) => {
                d == dtype
            }
        }) || self.kernel.values.iter().any(|v| v.ty.dtype() == Some(dtype))
            || self.helpers.iter().any(|h| h.text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name))
    }

    pub fn require(&mut self, helper: &'static Helper) {
        if !self.helpers.contains(&helper) {
            self.helpers.push(helper);
        }
    }

    pub fn enter(&mut self) {
        self.out.indent();
        self.names.enter();
    }

    pub fn leave(&mut self) {
        self.out.outdent();
        self.names.leave();
    }

    /// Prints a nested block, in braces that the caller writes.
    pub fn block(&mut self, block: &'k Block) {
        self.insts(block);
    }

    fn insts(&mut self, block: &'k Block) {
        block.insts.iter().for_each(|inst| self.inst(inst));
    }

    /// The only instruction of `block` that is printed as a statement, if there is just one.
    pub fn only_statement(&self, block: &'k Block) -> Option<&'k Inst> {
        let mut statements = block.insts.iter().filter(|inst| {
            let inlined = matches!(inst.results[..], [result] if self.plan.is_inlined(result));
            !inlined && !self.plan.is_dead(inst)
        });
        statements.next().filter(|_| statements.next().is_none())
    }

    fn inst(&mut self, inst: &'k Inst) {
        if self.plan.is_dead(inst) {
            return;
        }
        match inst.op.emit {
            Emit::Stmt(emit) => emit(&mut Cx { printer: self, inst, element: &[] }),
            Emit::Expr(_) => {
                let [result] = inst.results[..] else { return };
                if !self.plan.is_inlined(result) {
                    self.statement(inst, result);
                }
            }
        }
    }

    /// Names the result of an expression.
    fn statement(&mut self, inst: &'k Inst, result: ValueId) {
        let ty = self.kernel.ty(result);
        let axes = axes(ty);
        if axes.is_empty() {
            let expr = self.compute(inst, &[]);
            let name = self.declare(result, &self.hint(result));
            let constant = if std::ptr::eq(inst.op, &arith::CONST) { "constexpr" } else { "const" };
            // The declared type converts already.
            let text = expr.to_string();
            let text = if std::ptr::eq(inst.op, &index::INDEX) { text.trim_start_matches("(int)") } else { &text };
            let text = format!("{} {name} = {text};", self.constant(constant, result));
            self.out.line(&text, Some(inst.loc));
            return;
        }
        let name = self.declare(result, &self.hint(result));
        self.array(&name, ty, inst.loc);
        self.fill(&name, &axes, inst.loc, &mut |printer, index| printer.compute(inst, index));
    }

    /// How a constant that holds `id`, of one element, is declared: `const int`. A pointer into memory that the kernel
    /// writes points to what is not `const`.
    pub fn constant(&self, qualifier: &str, id: ValueId) -> String {
        let ty = self.kernel.ty(id);
        let written = matches!(ty, Type::Global(_))
            && self
                .pointee(id)
                .is_none_or(|param| matches!(param.kind, ParamKind::Pointer { access, .. } if access.writes()));
        if written { scalar_text(ty) } else { format!("{qualifier} {}", scalar_text(ty)) }
    }

    /// The parameter that a global pointer points into.
    pub fn pointee(&self, mut id: ValueId) -> Option<&'k Param> {
        loop {
            if let Origin::Param { index, .. } = self.kernel.value(id).origin {
                return self.kernel.params.get(index);
            }
            let is_pointer = |&&operand: &&ValueId| matches!(self.kernel.ty(operand), Type::Global(_));
            id = *self.plan.def(id)?.operands.iter().find(is_pointer)?;
        }
    }

    /// Declares an uninitialised register array for a tile.
    pub fn array(&mut self, name: &str, ty: Type, loc: Loc) {
        let dims: String = axes(ty).iter().map(|n| format!("[{n}]")).collect();
        self.out.line(&format!("{} {name}{dims};", register_text(ty)), Some(loc));
    }

    /// Prints loops that set every element of `name`.
    pub fn fill(&mut self, name: &str, axes: &[u32], loc: Loc, element: &mut dyn FnMut(&mut Self, &[Expr]) -> Expr) {
        self.names.enter();
        let mut index = Vec::new();
        for (depth, &count) in axes.iter().enumerate() {
            let i = self.names.take(axis_names(axes.len())[depth]);
            self.out.line("#pragma unroll", Some(loc));
            self.out.line(&format!("for (int {i} = 0; {i} < {count}; ++{i}) {{"), Some(loc));
            self.out.indent();
            index.push(Expr::primary(i));
        }
        let value = element(self, &index);
        let target = index.iter().fold(Expr::primary(name), |target, i| target.subscript(i));
        self.out.line(&format!("{target} = {value};"), Some(loc));
        for _ in axes {
            self.out.outdent();
            self.out.line("}", Some(loc));
        }
        self.names.leave();
    }

    /// Element `index` of `id`: computed on the spot if it is inlined, else by its name.
    pub fn element(&mut self, id: ValueId, index: &[Expr]) -> Expr {
        if let Some(inst) = self.inlined(id) {
            return self.compute(inst, index);
        }
        let name = self.named.get(&id).cloned().unwrap_or_else(|| format!("undefined_{}", id.0));
        index.iter().fold(Expr::primary(name), |tile, i| tile.subscript(i))
    }

    /// What computes `id`, if that is written where it is used.
    pub fn inlined(&self, id: ValueId) -> Option<&'k Inst> {
        if self.plan.is_inlined(id) { self.plan.def(id) } else { None }
    }

    fn compute(&mut self, inst: &'k Inst, index: &[Expr]) -> Expr {
        match inst.op.emit {
            Emit::Expr(emit) => emit(&mut Cx { printer: self, inst, element: index }),
            Emit::Stmt(_) => Expr::primary("undefined"),
        }
    }

    /// The name of a value that the author did not name.
    pub fn hint(&self, id: ValueId) -> String {
        if let Some(read) = self.plan.def(id).filter(|inst| std::ptr::eq(inst.op, &control::GET))
            && let Some(name) = &self.kernel.value(read.operands[0]).name
        {
            return format!("{name}_before");
        }
        match self.kernel.ty(id) {
            Type::Scalar(Dtype::Bool) => "mask",
            Type::Scalar(Dtype::F32) | Type::RowSums { .. } => "x",
            Type::Scalar(_) => "i",
            Type::Global(_) => match self.pointee(id) {
                Some(param) => return format!("{}_at", param.name),
                None => "p",
            },
            Type::Shared { tile, .. } => return format!("{}_stage", self.kernel.tiles[tile.index()].name),
            _ => "t",
        }
        .to_owned()
    }

    /// Gives `id` its name in the text.
    pub fn declare(&mut self, id: ValueId, hint: &str) -> String {
        let name = self.names.take(self.kernel.value(id).name.as_deref().unwrap_or(hint));
        self.named.insert(id, name.clone());
        name
    }
}

fn axis_names(count: usize) -> &'static [&'static str] {
    match count {
        1 => &["e"],
        2 => &["n", "e"],
        _ => &["m", "n", "e", "e"],
    }
}

/// The extents of the register array that holds a value on each lane; empty for one element.
pub fn axes(ty: Type) -> Vec<u32> {
    fn with_rows(rows: u32, rest: &[u32]) -> Vec<u32> {
        let outer = (rows > 16).then_some(rows / 16);
        outer.into_iter().chain(rest.iter().copied()).collect()
    }
    match ty {
        Type::Error | Type::Scalar(_) | Type::Global(_) | Type::Shared { .. } | Type::TensorMap { .. } => vec![],
        Type::Vector { dtype, len } => vec![len * (dtype.size() as u32).min(4) / register_bytes(dtype)],
        Type::A { dtype, rows, depth } => with_rows(rows, &[depth * dtype.size() as u32 / 32, 4]),
        Type::B { dtype, cols, depth } => vec![cols / 8, depth * dtype.size() as u32 / 32, 2],
        Type::Acc { rows, cols } => with_rows(rows, &[cols / 8, 4]),
        Type::Cols { cols } => vec![cols / 8, 2],
        Type::RowSums { rows } => {
            if rows > 32 {
                vec![rows / 32]
            } else {
                vec![]
            }
        }
    }
}

/// Bytes of the register array's elements that hold a `dtype`: elements under 4 bytes are packed.
fn register_bytes(dtype: Dtype) -> u32 {
    if dtype.size() < 4 { 4 } else { 4.min(dtype.size() as u32) }
}

/// The element type of the register array that holds a value.
pub fn register_text(ty: Type) -> &'static str {
    match ty {
        Type::A { .. } | Type::B { .. } => "unsigned",
        Type::Vector { dtype, .. } if dtype.size() < 4 => "unsigned",
        _ => ty.dtype().map_or("int", ctype),
    }
}

/// An element type in CUDA C++.
pub fn ctype(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "bool",
        Dtype::I32 => "int",
        Dtype::U32 => "unsigned",
        Dtype::I64 => "long long",
        Dtype::U64 => "unsigned long long",
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
        Dtype::F16 => "f16",
        Dtype::E4m3 => "e4m3",
        Dtype::U8 => "unsigned char",
    }
}
