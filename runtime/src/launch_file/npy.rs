//! NumPy's `.npy` files: a header of text, then the elements.
//!
//! Written here because a damaged file must be an error, and the library for it multiplies extents unchecked.

use std::sync::LazyLock;

use regex::Regex;

const MAGIC: &[u8] = b"\x93NUMPY";

/// What a file says about its elements, and where they start.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    /// NumPy's type string, such as `<f4`.
    pub dtype: String,
    pub shape: Vec<u64>,
    /// Offset of the first element.
    pub data: usize,
}

/// Reads the header of a file in C order; otherwise says what is wrong.
pub(super) fn header(file: &[u8]) -> Result<Header, String> {
    static DTYPE: LazyLock<Regex> = LazyLock::new(|| pattern(r"'descr':\s*'([^']*)'"));
    static ORDER: LazyLock<Regex> = LazyLock::new(|| pattern(r"'fortran_order':\s*(True|False)"));
    static SHAPE: LazyLock<Regex> = LazyLock::new(|| pattern(r"'shape':\s*\(([0-9,\sL]*)\)"));

    let truncated = || "the file ends inside its header".to_owned();
    let rest = file.strip_prefix(MAGIC).ok_or("it does not start with the mark of a .npy file")?;
    let major = *rest.first().ok_or_else(truncated)?;
    let len_bytes = if major == 1 { 2 } else { 4 };
    let len = rest.get(2..2 + len_bytes).ok_or_else(truncated)?;
    let len = len.iter().rev().fold(0usize, |len, byte| len << 8 | usize::from(*byte));
    let start = MAGIC.len() + 2 + len_bytes;
    let text = start.checked_add(len).and_then(|end| file.get(start..end)).ok_or_else(truncated)?;
    let text = String::from_utf8_lossy(text);

    let find = |regex: &Regex, what: &str| {
        let found = regex.captures(&text).map(|found| found[1].to_owned());
        found.ok_or_else(|| format!("its header gives no {what} of a plain array"))
    };
    let dtype = find(&DTYPE, "type")?;
    let fortran = find(&ORDER, "order")? == "True";
    let shape = find(&SHAPE, "shape")?;
    let extents =
        shape.split(',').map(|extent| extent.trim().trim_end_matches('L')).filter(|extent| !extent.is_empty());
    let shape: Vec<u64> = extents
        .map(|extent| extent.parse().map_err(|_| format!("`{extent}` is no extent")))
        .collect::<Result<_, _>>()?;
    if fortran && shape.len() > 1 {
        return Err("its elements are in Fortran order; save it with `numpy.ascontiguousarray`".into());
    }
    Ok(Header { dtype, shape, data: start + len })
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern")
}

/// A header for elements of `dtype`, as NumPy writes it: padded so that the elements start at a multiple of 64.
pub(super) fn header_bytes(dtype: &str, shape: &[u64]) -> Vec<u8> {
    let extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let extents = if shape.len() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({extents}), }}");
    let before = MAGIC.len() + 4;
    while !(before + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_are_aligned() {
        for shape in [vec![], vec![7], vec![3, 4], vec![1, 2, 3, 4]] {
            let bytes = header_bytes("<f4", &shape);
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(header(&bytes), Ok(Header { dtype: "<f4".into(), shape, data: bytes.len() }));
        }
        let text = String::from_utf8_lossy(&header_bytes("<u2", &[5])).into_owned();
        assert!(text.contains("'shape': (5,), }"), "{text}");
    }

    #[test]
    fn damage_is_named() {
        let good = header_bytes("<f4", &[3, 4]);
        for cut in 0..good.len() {
            assert!(header(&good[..cut]).is_err());
        }
        let changed = |from: &str, to: &str| {
            let text = good.iter().map(|&byte| byte as char).collect::<String>().replace(from, to);
            header(&text.chars().map(|c| c as u8).collect::<Vec<u8>>()).unwrap_err()
        };
        assert!(changed("False", "True ").contains("Fortran"));
        assert!(changed("(3, 4)", "(3, x)").contains("shape"));
        assert!(changed("'<f4'", "[('a'").contains("type"));
        assert!(changed("(3, 4), }", "(3, 99999999999999999999), }").contains("99999999999999999999"));
    }
}
