//! Tensor maps: what a tensor copy knows about the global memory that it copies from or to.
//!
//! The driver's encoding of its 128 bytes is nobody's business but the hardware's. Here they hold what the description
//! says, so that a map works from wherever a kernel may keep it: in its parameters or in global memory.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Bytes of a tensor map.
pub(crate) const BYTES: usize = 128;
/// What the first bytes of a map hold.
const MAGIC: [u8; 8] = *b"lathemap";

/// How a tensor copy permutes the 16-byte chunks of shared memory, by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorSwizzle {
    /// As they come.
    #[default]
    None,
    /// Chunks of 32 bytes: bit 4 of the address is that xor bit 7.
    B32,
    /// Chunks of 64 bytes: bits 4 and 5 xor bits 7 and 8.
    B64,
    /// Chunks of 128 bytes: bits 4 to 6 xor bits 7 to 9.
    B128,
}

impl TensorSwizzle {
    /// Most bytes of a row of the box.
    pub const fn span(self) -> u32 {
        match self {
            Self::None => u32::MAX,
            Self::B32 => 32,
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }

    /// Where the byte that would lie at `address` lies.
    pub(crate) fn permute(self, address: u32) -> u32 {
        let bits = match self {
            Self::None => 0,
            Self::B32 => 0x10,
            Self::B64 => 0x30,
            Self::B128 => 0x70,
        };
        address ^ (address >> 3 & bits)
    }
}

/// A tensor in global memory, and the box of it that a copy moves. Dimension 0 is the innermost one, whose elements lie
/// one behind the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// Address of the first element, a multiple of 16.
    pub address: u64,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// Elements along each of 1 to 5 dimensions.
    pub dims: Vec<u64>,
    /// Bytes from an element to the next one along dimensions 1 and up: multiples of 16 below 2^40.
    pub strides: Vec<u64>,
    /// Elements of the box along each dimension, 1 to 256; the innermost ones are a multiple of 16 bytes.
    pub box_dims: Vec<u32>,
    /// How the box lies in shared memory.
    #[serde(default)]
    pub swizzle: TensorSwizzle,
}

impl TensorMap {
    /// Checks what the driver would refuse.
    pub fn check(&self) -> Result<()> {
        let refuse =
            |field: &'static str, value: String, accepted: String| Err(Error::TensorMap { field, value, accepted });
        let rank = self.dims.len();
        if !(1..=5).contains(&rank) {
            return refuse("dims", format!("{rank} of them"), "1 to 5 dimensions".into());
        }
        if !matches!(self.element_bytes, 1 | 2 | 4 | 8) {
            return refuse("element_bytes", self.element_bytes.to_string(), "1, 2, 4 or 8".into());
        }
        if !self.address.is_multiple_of(16) {
            return refuse("address", format!("{:#x}", self.address), "a multiple of 16".into());
        }
        if let Some(dim) = self.dims.iter().find(|dim| !(1..=1 << 32).contains(*dim)) {
            return refuse("dims", dim.to_string(), "1 to 2^32 elements along each dimension".into());
        }
        if self.strides.len() != rank - 1 {
            return refuse(
                "strides",
                format!("{} of them", self.strides.len()),
                format!("one for each dimension but the innermost: {}", rank - 1),
            );
        }
        if let Some(stride) = self.strides.iter().find(|s| !s.is_multiple_of(16) || **s >= 1 << 40) {
            return refuse("strides", stride.to_string(), "multiples of 16 bytes below 2^40".into());
        }
        if self.box_dims.len() != rank {
            return refuse(
                "box_dims",
                format!("{} of them", self.box_dims.len()),
                format!("one for each dimension: {rank}"),
            );
        }
        if let Some(dim) = self.box_dims.iter().find(|dim| !(1..=256).contains(*dim)) {
            return refuse("box_dims", dim.to_string(), "1 to 256 elements along each dimension".into());
        }
        let row = self.row_bytes();
        if !row.is_multiple_of(16) || row > self.swizzle.span() {
            let most = match self.swizzle {
                TensorSwizzle::None => "a multiple of 16 bytes along the innermost dimension".to_owned(),
                swizzle => format!(
                    "a multiple of 16 bytes, up to {} with this swizzle, along the innermost dimension",
                    swizzle.span()
                ),
            };
            return refuse("box_dims", format!("{} elements of {} bytes", self.box_dims[0], self.element_bytes), most);
        }
        Ok(())
    }

    fn row_bytes(&self) -> u32 {
        self.box_dims[0] * self.element_bytes
    }

    /// Bytes of a box: what a copy adds to the count of its mbarrier, also where it reaches past the tensor.
    pub(crate) fn box_bytes(&self) -> u32 {
        self.box_dims.iter().product::<u32>() * self.element_bytes
    }

    /// The bytes that stand for the map in a kernel's parameter.
    pub fn encode(&self) -> Result<[u8; BYTES]> {
        self.check()?;
        let mut out = Vec::with_capacity(BYTES);
        out.extend(MAGIC);
        out.extend(self.address.to_le_bytes());
        out.extend([self.dims.len() as u8, self.element_bytes as u8, self.swizzle as u8]);
        for dim in &self.dims {
            // 1 to 2^32 fit four bytes as one less.
            out.extend(((dim - 1) as u32).to_le_bytes());
        }
        for stride in &self.strides {
            out.extend(&stride.to_le_bytes()[..5]);
        }
        out.extend(self.box_dims.iter().map(|dim| (dim - 1) as u8));
        out.resize(BYTES, 0);
        Ok(out.try_into().expect("resized"))
    }

    /// The map that some bytes stand for, if they do.
    pub(crate) fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let mut take = |n: usize| {
            let (taken, left) = rest.split_at(n);
            rest = left;
            let mut word = [0; 8];
            word[..n].copy_from_slice(taken);
            u64::from_le_bytes(word)
        };
        let address = take(8);
        let (rank, element_bytes) = (take(1) as usize, take(1) as u32);
        let swizzle = match take(1) {
            0 => TensorSwizzle::None,
            1 => TensorSwizzle::B32,
            2 => TensorSwizzle::B64,
            3 => TensorSwizzle::B128,
            _ => return None,
        };
        if !(1..=5).contains(&rank) {
            return None;
        }
        let dims = (0..rank).map(|_| take(4) + 1).collect();
        let strides = (1..rank).map(|_| take(5)).collect();
        let box_dims = (0..rank).map(|_| take(1) as u32 + 1).collect();
        let map = Self { address, element_bytes, dims, strides, box_dims, swizzle };
        map.check().is_ok().then_some(map)
    }

    /// The rows of the box at `coordinates`: each with the offset of its first byte from the box's start, the global
    /// address of that byte, and the bytes of it that lie inside the tensor.
    pub(crate) fn rows(&self, coordinates: &[i32]) -> Vec<BoxRow> {
        let count: u32 = self.box_dims[1..].iter().product();
        let row_bytes = self.row_bytes();
        let first = i64::from(coordinates[0]);
        let inside = |at: i64| at.clamp(0, self.dims[0] as i64);
        let valid_from = (inside(first) - first) as u32 * self.element_bytes;
        let valid_to = (inside(first + i64::from(self.box_dims[0])) - first) as u32 * self.element_bytes;
        let row = |index: u32| {
            let (mut rest, mut exists) = (index, true);
            let mut address = self.address.wrapping_add_signed(first * i64::from(self.element_bytes));
            for dim in 1..self.dims.len() {
                let at = i64::from(coordinates[dim]) + i64::from(rest % self.box_dims[dim]);
                rest /= self.box_dims[dim];
                exists &= (0..self.dims[dim] as i64).contains(&at);
                address = address.wrapping_add_signed(at.wrapping_mul(self.strides[dim - 1] as i64));
            }
            let valid = if exists && valid_from < valid_to { valid_from..valid_to } else { 0..0 };
            BoxRow { offset: index * row_bytes, address, bytes: row_bytes, valid }
        };
        (0..count).map(row).collect()
    }
}

/// A row of a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoxRow {
    /// Bytes from the start of the box, before any permutation.
    pub offset: u32,
    /// Global address of the row's first byte, which need not exist.
    pub address: u64,
    pub bytes: u32,
    /// The bytes that lie in the tensor.
    pub valid: std::ops::Range<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap {
            address: 0x7_0000_0000,
            element_bytes: 2,
            dims: vec![128, 64, 10],
            strides: vec![256, 1_077_120],
            box_dims: vec![64, 4, 1],
            swizzle: TensorSwizzle::B128,
        }
    }

    #[test]
    fn a_map_survives_its_encoding() {
        let wide = TensorMap {
            dims: vec![1 << 32, 1, 1, 1, 1],
            strides: vec![16, 32, 48, (1 << 40) - 16],
            box_dims: vec![8, 256, 1, 1, 1],
            ..map()
        };
        for map in [map(), wide] {
            assert_eq!(TensorMap::decode(&map.encode().unwrap()), Some(map));
        }
        assert_eq!(TensorMap::decode(&[0; BYTES]), None);
    }

    #[test]
    fn boxes_are_cut_at_the_edges_of_the_tensor() {
        let rows = map().rows(&[96, 62, 1]);
        let page = 0x7_0000_0000 + 1_077_120;
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[0], BoxRow { offset: 0, address: page + 62 * 256 + 192, bytes: 128, valid: 0..64 });
        assert_eq!((rows[1].offset, rows[1].valid.clone()), (128, 0..64));
        assert_eq!((rows[2].valid.clone(), rows[3].valid.clone()), (0..0, 0..0));
        let before = map().rows(&[-8, -1, 0]);
        assert_eq!((before[0].valid.clone(), before[1].valid.clone()), (0..0, 16..128));
    }

    #[test]
    fn a_swizzle_permutes_the_chunks_of_a_row_by_its_number() {
        for row in 0..16 {
            for chunk in 0..8 {
                let found = TensorSwizzle::B128.permute(1024 + row * 128 + chunk * 16);
                assert_eq!(found, 1024 + row * 128 + (chunk ^ row % 8) * 16);
            }
        }
        assert_eq!(TensorSwizzle::B64.permute(0x1b0), 0x180);
        assert_eq!(TensorSwizzle::B32.permute(0x1b0), 0x1a0);
        assert_eq!(TensorSwizzle::None.permute(0x1b0), 0x1b0);
    }

    #[test]
    fn what_the_driver_refuses_is_refused_with_the_field_and_the_value() {
        let refused = |change: fn(&mut TensorMap), message: &str| {
            let mut map = map();
            change(&mut map);
            let error = map.encode().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        refused(|m| m.address += 8, "`address` is 0x700000008, and a multiple of 16 is accepted");
        refused(|m| m.strides[1] = 1_077_128, "`strides` is 1077128");
        refused(|m| m.strides.clear(), "`strides` is 0 of them");
        refused(|m| m.box_dims[0] = 128, "up to 128 with this swizzle");
        refused(|m| m.box_dims[1] = 257, "`box_dims` is 257, and 1 to 256 elements along each dimension is accepted");
        refused(|m| m.dims = vec![1; 6], "`dims` is 6 of them");
        refused(|m| m.element_bytes = 3, "`element_bytes` is 3");
    }
}
