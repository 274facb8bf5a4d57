//! Shared-memory tiles of the kernel that is being recorded: declared, named, laid out.

use super::Builder;
use crate::dtype::Dtype;
use crate::ir::{Attrs, Origin, SharedTile, Swizzle, Type, Value, ValueId};
use crate::loc::Loc;
use crate::ops::OpDef;
use crate::target::Target;

impl Builder {
    /// Names the tiles after their `let`s.
    pub(super) fn name_tiles(&mut self) {
        for value in &self.kernel.values {
            if let (Type::Shared { tile, .. }, Some(name)) = (value.ty, &value.name) {
                let tile = &mut self.kernel.tiles[tile.index()];
                if tile.name.is_empty() {
                    tile.name.clone_from(name);
                }
            }
        }
        for (index, tile) in self.kernel.tiles.iter_mut().enumerate() {
            if tile.name.is_empty() {
                tile.name = format!("tile{index}");
            }
        }
    }

    /// Refuses tiles that no target has room for; what one target has room for is known when the kernel is printed.
    pub(super) fn check_shared_memory(&mut self) {
        let bytes = self.kernel.tiles.iter().fold(0, |sum: u64, tile| sum.saturating_add(tile.declared_bytes()));
        let largest = Target::ALL.into_iter().max_by_key(|target| target.max_shared_per_cta());
        let (Some(target), Some(tile)) = (largest, self.kernel.tiles.iter().max_by_key(|tile| tile.declared_bytes()))
        else {
            return;
        };
        let limit = target.max_shared_per_cta();
        if bytes > limit.into() {
            let tiles: Vec<_> = self.kernel.tiles.iter().map(SharedTile::summary).collect();
            let message = format!(
                "the tiles need {bytes} bytes of shared memory a CTA, and no target has more than {limit} ({target}): \
                 use fewer stages or smaller tiles ({})",
                tiles.join("; ")
            );
            self.error(tile.loc, message, None);
        }
    }

    /// Places the tiles one after the other.
    pub(super) fn lay_out_shared_memory(&mut self) {
        let mut offset: u32 = 0;
        for tile in &mut self.kernel.tiles {
            // Addresses within a row of a permuted tile differ from its start in the low bits only; where tensor copies
            // and tensor cores permute rows of 128 bytes, they go by the address.
            let alignment = match (tile.swizzle, tile.row_bytes()) {
                (Swizzle::Xor16, 128) => 1024,
                (_, bytes) => bytes.next_power_of_two().clamp(128, 1024),
            };
            tile.offset = offset.next_multiple_of(alignment);
            offset = tile.offset + tile.bytes();
        }
    }

    /// Declares a plain tile that the CTA shares, `rows x cols`, named by the result of `op`.
    pub fn shared_memory(&mut self, op: &'static OpDef, dtype: Dtype, rows: i32, cols: i32, loc: Loc) -> ValueId {
        let (Some(rows), Some(cols)) = (positive(rows), positive(cols)) else {
            self.error(loc, format!("a tile has at least one row and one column, not {rows} x {cols}"), None);
            return self.value(Type::Error, Origin::Result, loc);
        };
        let index = self.kernel.tiles.len() as u16;
        self.kernel.tiles.push(SharedTile {
            name: String::new(),
            dtype,
            rows,
            cols,
            stages: None,
            copies: 1,
            swizzle: Swizzle::None,
            offset: 0,
            loc,
        });
        self.emit(op, &[], Attrs::none().with("tile", u32::from(index)), loc)
    }

    /// Changes the tile that `id` declares, which nothing uses yet.
    pub fn alter_tile(&mut self, id: ValueId, change: impl FnOnce(&mut SharedTile)) {
        if let Type::Shared { tile, .. } = self.ty(id) {
            let record = &mut self.kernel.tiles[tile.index()];
            change(record);
            let staged = record.stages.is_some();
            self.kernel.values[id.index()].ty = Type::Shared { tile, staged };
        }
    }

    /// Refuses an index that is known and outside `0..len`; `what` names the index and what it is an index of.
    pub fn check_index(&mut self, index: ValueId, len: u32, tile: ValueId, what: &str, loc: Loc) {
        let (Some(at), Some(record)) = (self.literal(index), self.tile(tile)) else { return };
        if (0..i64::from(len)).contains(&at) {
            return;
        }
        let SharedTile { dtype, rows, cols, loc: declared, .. } = *record;
        let stages = record.stages.map_or_else(String::new, |n| format!("{n} stages of "));
        let name = self.tile_name(tile).map_or_else(|| "this tile".to_owned(), |name| format!("`{name}`"));
        let message = format!(
            "{what} {at} is outside {name}, {stages}{dtype} [{rows}, {cols}]: its {what}s are 0 to {}",
            len - 1
        );
        self.error(loc, message, Some((declared, "declared here".to_owned())));
    }

    /// The author's name for the tile that `id` is, or is a stage of.
    fn tile_name(&self, id: ValueId) -> Option<&str> {
        let Type::Shared { tile: wanted, .. } = self.ty(id) else { return None };
        let named =
            |value: &&Value| matches!(value.ty, Type::Shared { tile, .. } if tile == wanted) && value.name.is_some();
        self.kernel.values.iter().find(named)?.name.as_deref()
    }

    /// The tile that `id` names.
    pub fn tile(&self, id: ValueId) -> Option<&SharedTile> {
        match self.ty(id) {
            Type::Shared { tile, .. } => self.kernel.tiles.get(tile.index()),
            _ => None,
        }
    }
}

fn positive(n: i32) -> Option<u32> {
    u32::try_from(n).ok().filter(|&n| n > 0)
}
