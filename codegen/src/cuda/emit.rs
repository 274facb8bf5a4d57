//! What an op's CUDA text is written with.

use super::expr::Expr;
use super::helper::Helper;
use super::printer::{Printer, axes};
use crate::ir::{Attr, Block, Inst, Kernel, Param, SharedTile, Type, ValueId};
use crate::ops::arith;

/// How an op is printed.
pub enum Emit {
    /// As an expression, of one element if its result is a register tile.
    Expr(fn(&mut Cx<'_, '_>) -> Expr),
    /// As statements, which declare its results.
    Stmt(fn(&mut Cx<'_, '_>)),
}

/// The instruction being printed, and the printer.
pub struct Cx<'p, 'k> {
    pub(super) printer: &'p mut Printer<'k>,
    pub(super) inst: &'k Inst,
    /// Which element an expression is asked for.
    pub(super) element: &'p [Expr],
}

impl<'k> Cx<'_, 'k> {
    /// The instruction.
    pub fn inst(&self) -> &'k Inst {
        self.inst
    }

    /// The kernel.
    pub fn kernel(&self) -> &'k Kernel {
        self.printer.kernel
    }

    /// The type of operand `i`.
    pub fn operand_type(&self, i: usize) -> Type {
        self.kernel().ty(self.inst.operands[i])
    }

    /// The type of result `i`.
    pub fn result_type(&self, i: usize) -> Type {
        self.kernel().ty(self.inst.results[i])
    }

    /// Operand `i`; of a register tile, the element that corresponds to the one asked for.
    pub fn operand(&mut self, i: usize) -> Expr {
        let operand = self.inst.operands[i];
        let whole = self.inst.results.first().map(|&r| self.kernel().ty(r));
        let element = match whole {
            Some(whole) => corresponding(whole, self.kernel().ty(operand), self.element),
            None => Vec::new(),
        };
        self.printer.element(operand, &element)
    }

    /// Element `index` of operand `i`, a register tile.
    pub fn operand_at(&mut self, i: usize, index: &[Expr]) -> Expr {
        self.printer.element(self.inst.operands[i], index)
    }

    /// Operand `i` as a name: what is worth naming gets a statement first, named after what it is.
    pub fn operand_named(&mut self, i: usize) -> Expr {
        let expr = self.operand(i);
        if expr.is_atom() {
            return expr;
        }
        let declared = self.printer.constant("const", self.inst.operands[i]);
        let hint = self.printer.hint(self.inst.operands[i]);
        let name = self.printer.names.take(&hint);
        self.line(&format!("{declared} {name} = {expr};"));
        Expr::primary(name)
    }

    /// A statement that names `expr`, of C++ type `ty`.
    pub fn name(&mut self, hint: &str, ty: &str, expr: &Expr) -> Expr {
        let name = self.printer.names.take(hint);
        self.line(&format!("const {ty} {name} = {expr};"));
        Expr::primary(name)
    }

    /// The name of result `i`, to be declared by the statements that follow.
    pub fn result(&mut self, i: usize, hint: &str) -> String {
        self.printer.declare(self.inst.results[i], hint)
    }

    /// The integer attribute `name`.
    pub fn attr(&self, name: &str) -> i64 {
        self.inst.attrs.int(name)
    }

    /// A name for a local of the statements, in the present scope.
    pub fn local(&mut self, hint: &str) -> String {
        self.printer.names.take(hint)
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) {
        self.printer.out.line(text, Some(self.inst.loc));
    }

    /// Prints a comment of the author's words.
    pub fn comment(&mut self, text: &str) {
        self.printer.out.comment(text, Some(self.inst.loc));
    }

    /// Prints an empty line where one sets things apart.
    pub fn gap(&mut self) {
        self.printer.out.gap();
    }

    /// Prints `text {` and indents what follows.
    pub fn open(&mut self, text: &str) {
        self.line(&format!("{text} {{"));
        self.printer.enter();
    }

    /// Ends what [`Cx::open`] or [`Cx::open_loop`] began.
    pub fn close(&mut self) {
        self.printer.leave();
        self.line("}");
    }

    /// Between two blocks of an `if`: `} else {`.
    pub fn otherwise(&mut self, text: &str) {
        self.printer.leave();
        self.line(&format!("}} {text} {{"));
        self.printer.enter();
    }

    /// The only instruction of `block` that is printed as a statement, if there is just one.
    pub fn only_statement(&self, block: &'k Block) -> Option<&'k Inst> {
        self.printer.only_statement(block)
    }

    /// Prints the `for` header that `header` makes from the name of the loop's index, and indents what follows.
    pub fn open_loop(&mut self, index: ValueId, header: impl FnOnce(&str) -> String) {
        self.printer.names.enter();
        let name = self.printer.declare(index, "i");
        self.line(&format!("{} {{", header(&name)));
        self.printer.out.indent();
    }

    /// Prints an unrolled loop of `count` turns around what `body` prints; one turn prints no loop.
    pub fn unrolled(&mut self, hint: &str, count: u32, body: impl FnOnce(&mut Self, &Expr)) {
        if count == 1 {
            return body(self, &Expr::primary("0"));
        }
        self.line("#pragma unroll");
        self.printer.names.enter();
        let i = self.local(hint);
        self.line(&format!("for (int {i} = 0; {i} < {count}; ++{i}) {{"));
        self.printer.out.indent();
        body(self, &Expr::primary(i));
        self.close();
    }

    /// Declares an uninitialised register array for a value of type `ty`.
    pub fn array(&mut self, name: &str, ty: Type) {
        self.printer.array(name, ty, self.inst.loc);
    }

    /// Prints loops that set every element of `name`, of type `ty`, to that of operand `i`.
    pub fn fill(&mut self, name: &str, ty: Type, i: usize) {
        let operand = self.inst.operands[i];
        let from = self.kernel().ty(operand);
        self.printer.fill(name, &axes(ty), self.inst.loc, &mut |printer, index| {
            printer.element(operand, &corresponding(ty, from, index))
        });
    }

    /// What computes operand `i`, if that is written here and not named before.
    pub fn inlined(&self, i: usize) -> Option<&'k Inst> {
        self.printer.inlined(self.inst.operands[i])
    }

    /// What computes `id`, if that is written here and not named before.
    pub fn inlined_value(&self, id: ValueId) -> Option<&'k Inst> {
        self.printer.inlined(id)
    }

    /// The integer that operand `i` is, if it is a literal.
    pub fn literal(&self, i: usize) -> Option<i64> {
        let literal = self.inlined(i).filter(|inst| std::ptr::eq(inst.op, &arith::CONST))?;
        match literal.attrs.get("value") {
            Some(Attr::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The value `id`, of one element.
    pub fn expr(&mut self, id: ValueId) -> Expr {
        self.printer.element(id, &[])
    }

    /// The shared-memory tile that operand `i` names.
    pub fn tile(&self, i: usize) -> &'k SharedTile {
        let Type::Shared { tile, .. } = self.operand_type(i) else {
            unreachable!("the signature asks for a tile");
        };
        &self.kernel().tiles[tile.index()]
    }

    /// The parameter that a global pointer points into.
    pub fn pointee(&self, pointer: ValueId) -> Option<&'k Param> {
        self.printer.pointee(pointer)
    }

    /// Asks for `helper` before the kernel.
    pub fn require(&mut self, helper: &'static Helper) {
        self.printer.require(helper);
    }

    /// The thread's index in its CTA.
    pub fn thread(&mut self) -> Expr {
        self.printer.uses_thread = true;
        Expr::primary("thread")
    }

    /// The lane's index in its warp.
    pub fn lane(&mut self) -> Expr {
        self.printer.uses_lane = true;
        Expr::primary("lane")
    }

    /// The warp's index in its CTA.
    pub fn warp(&mut self) -> Expr {
        self.printer.uses_warp = true;
        Expr::primary("warp")
    }

    /// Prints nested block `i` of a control-flow instruction.
    pub fn block(&mut self, i: usize) {
        self.nested(&self.inst.blocks[i]);
    }

    /// Prints a block of an instruction nested in this one.
    pub fn nested(&mut self, block: &'k Block) {
        self.printer.block(block);
    }
}

/// How a type is written in CUDA, for one element.
pub fn scalar_text(ty: Type) -> String {
    match ty {
        Type::Global(dtype) => format!("{}*", super::printer::ctype(dtype)),
        Type::Shared { .. } => "unsigned".to_owned(),
        _ => ty.dtype().map_or("int", super::printer::ctype).to_owned(),
    }
}

/// The element of an operand of type `part` that goes with element `index` of a tile of type `whole`.
fn corresponding(whole: Type, part: Type, index: &[Expr]) -> Vec<Expr> {
    match (whole, part) {
        (Type::Acc { .. }, Type::Cols { .. }) => {
            let [.., n, e] = index else { return Vec::new() };
            vec![n.clone(), remainder(e, 2)]
        }
        (whole, part) if whole == part => index.to_vec(),
        _ => Vec::new(),
    }
}

/// `e % by`, computed if `e` is a number.
fn remainder(e: &Expr, by: u32) -> Expr {
    match e.to_string().parse::<u32>() {
        Ok(e) => Expr::primary((e % by).to_string()),
        Err(_) => Expr::binary(super::prec::PRODUCT, "%", e, &Expr::primary(by.to_string())),
    }
}
