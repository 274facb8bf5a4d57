//! Blocks: opened, closed, and what may be seen from where.

use super::{Builder, Unroll};
use crate::ir::{Attrs, Block, Origin, ValueId};
use crate::loc::Loc;
use crate::ops::{control, role};

/// A block being recorded.
#[derive(Debug)]
pub(super) struct Frame {
    pub id: u32,
    pub block: Block,
    pub kind: FrameKind,
}

#[derive(Debug)]
pub(super) enum FrameKind {
    Body,
    Then { cond: ValueId, loc: Loc },
    Else { cond: ValueId, loc: Loc, then: Block },
    For { bounds: [ValueId; 3], unroll: Unroll, loc: Loc },
    Role { attrs: Attrs, loc: Loc },
}

impl Builder {
    /// The innermost open block: a number of its own, and where its `if` or `for` stands.
    pub fn scope(&self) -> (u32, Loc) {
        let innermost = self.frames.last().expect("the body's frame stays open");
        (innermost.id, innermost.loc(self.kernel.loc))
    }

    /// Opens the block that runs where `cond` holds.
    pub fn begin_if(&mut self, cond: ValueId, loc: Loc) {
        let cond = self.read(cond, loc);
        self.open(FrameKind::Then { cond, loc });
    }

    /// Ends the block of the innermost `if` and opens the one that runs where its condition does not hold.
    pub fn begin_else(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::Then { cond, loc }, .. }) => {
                self.open(FrameKind::Else { cond, loc, then: block });
            }
            other => self.misnested("else", other, loc),
        }
    }

    /// Ends the innermost `if`.
    pub fn end_if(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::Then { cond, loc }, .. }) => {
                self.record(&control::IF, &[cond], Attrs::none(), vec![block], loc);
            }
            Some(Frame { block, kind: FrameKind::Else { cond, loc, then }, .. }) => {
                self.record(&control::IF, &[cond], Attrs::none(), vec![then, block], loc);
            }
            other => self.misnested("end of an `if`", other, loc),
        }
    }

    /// Opens the body of `for index in start..end` by `step`, and returns its index. The three have one integer type;
    /// `step` is positive.
    pub fn begin_for(&mut self, start: ValueId, end: ValueId, step: ValueId, unroll: Unroll, loc: Loc) -> ValueId {
        let bounds = [start, end, step].map(|bound| self.read(bound, loc));
        let ty = self.ty(bounds[0]);
        self.open(FrameKind::For { bounds, unroll, loc });
        let index = self.value(ty, Origin::Index, loc);
        self.frame().block.params.push(index);
        index
    }

    /// Ends the innermost `for`.
    pub fn end_for(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::For { bounds, unroll, loc }, .. }) => {
                let unroll = match unroll {
                    Unroll::Auto => "auto",
                    Unroll::Full => "full",
                    Unroll::Never => "never",
                };
                self.record(&control::FOR, &bounds, Attrs::none().with("unroll", unroll), vec![block], loc);
            }
            other => self.misnested("end of a `for`", other, loc),
        }
    }

    /// Opens the body of a warp role.
    pub fn begin_role(&mut self, attrs: Attrs, loc: Loc) {
        self.open(FrameKind::Role { attrs, loc });
    }

    /// Ends the innermost warp role.
    pub fn end_role(&mut self, loc: Loc) {
        match self.close() {
            Some(Frame { block, kind: FrameKind::Role { attrs, loc }, .. }) => {
                self.record(&role::ROLE, &[], attrs, vec![block], loc);
            }
            other => self.misnested("end of a warp role", other, loc),
        }
    }

    /// Refuses a value whose block is closed, in a message that names both places.
    pub(super) fn check_in_scope(&mut self, id: ValueId, loc: Loc) -> bool {
        let home = self.homes[id.index()];
        if self.frames.iter().any(|frame| frame.id == home) {
            return true;
        }
        let value = self.kernel.value(id);
        let what = value.name.as_ref().map_or_else(|| "this value".to_owned(), |name| format!("`{name}`"));
        let computed = value.loc;
        let message = format!(
            "{what} was computed inside an `if` or `for` that has ended: declare `let mut` before the block and assign to it inside"
        );
        self.error(loc, message, Some((computed, "computed here".to_owned())));
        false
    }

    pub(super) fn open(&mut self, kind: FrameKind) {
        self.opened += 1;
        self.frames.push(Frame { id: self.opened, block: Block::default(), kind });
    }

    pub(super) fn close(&mut self) -> Option<Frame> {
        if self.frames.len() > 1 { self.frames.pop() } else { None }
    }

    pub(super) fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the body's frame stays open")
    }

    fn misnested(&mut self, what: &str, found: Option<Frame>, loc: Loc) {
        let related = found.as_ref().map(|frame| (frame.loc(loc), "the innermost open block is here".to_owned()));
        self.error(loc, format!("{what} without its beginning: blocks were left by `break` or `return`"), related);
        self.frames.extend(found);
    }
}

impl Frame {
    fn loc(&self, body: Loc) -> Loc {
        match self.kind {
            FrameKind::Body => body,
            FrameKind::Then { loc, .. }
            | FrameKind::Else { loc, .. }
            | FrameKind::For { loc, .. }
            | FrameKind::Role { loc, .. } => loc,
        }
    }
}
