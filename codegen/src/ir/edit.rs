//! Finding and altering instructions of a kernel by position: what mutation tools and static analyses use.

use super::{Block, Inst, Kernel};

/// Where an instruction stands: for each level of nesting, the instruction's index in its block and, but for the last,
/// the index of the block entered.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Path {
    enters: Vec<(usize, usize)>,
    index: usize,
}

impl Path {
    /// How many `if`s and `for`s enclose the instruction.
    pub fn depth(&self) -> usize {
        self.enters.len()
    }

    /// The instruction after this one in the same block (which may not exist).
    #[must_use]
    pub fn next(&self) -> Path {
        Path { enters: self.enters.clone(), index: self.index + 1 }
    }
}

impl Kernel {
    /// Every instruction in program order, outer ones before those nested in them.
    pub fn insts(&self) -> Vec<(Path, &Inst)> {
        fn walk<'a>(block: &'a Block, enters: &mut Vec<(usize, usize)>, out: &mut Vec<(Path, &'a Inst)>) {
            for (index, inst) in block.insts.iter().enumerate() {
                out.push((Path { enters: enters.clone(), index }, inst));
                for (which, nested) in inst.blocks.iter().enumerate() {
                    enters.push((index, which));
                    walk(nested, enters, out);
                    enters.pop();
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.body, &mut Vec::new(), &mut out);
        out
    }

    /// The instruction at `path`.
    pub fn inst(&self, path: &Path) -> Option<&Inst> {
        let block = path
            .enters
            .iter()
            .try_fold(&self.body, |block, &(index, which)| block.insts.get(index)?.blocks.get(which))?;
        block.insts.get(path.index)
    }

    /// The instruction at `path`, to alter in place.
    pub fn inst_mut(&mut self, path: &Path) -> Option<&mut Inst> {
        let index = path.index;
        self.block_mut(path)?.insts.get_mut(index)
    }

    /// Takes the instruction at `path` out. Uses of its results are left dangling: remove those that define nothing
    /// used, and let the verifier judge.
    pub fn remove(&mut self, path: &Path) -> Option<Inst> {
        let index = path.index;
        let block = self.block_mut(path)?;
        (index < block.insts.len()).then(|| block.insts.remove(index))
    }

    /// Puts `inst` before the instruction at `path`, or at the end of that block. Says whether there is such a place.
    pub fn insert(&mut self, path: &Path, inst: Inst) -> bool {
        let index = path.index;
        match self.block_mut(path) {
            Some(block) if index <= block.insts.len() => {
                block.insts.insert(index, inst);
                true
            }
            _ => false,
        }
    }

    fn block_mut(&mut self, path: &Path) -> Option<&mut Block> {
        path.enters
            .iter()
            .try_fold(&mut self.body, |block, &(index, which)| block.insts.get_mut(index)?.blocks.get_mut(which))
    }
}
