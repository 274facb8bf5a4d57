//! Element types of buffers and scalars, and numbers to their bytes.

use std::fmt;

use half::{bf16, f16};

/// A number as a launch file gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Written without a point or exponent.
    Integer(i128),
    /// Written with one, or `nan`, or `inf`.
    Float(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Integer(value) => value.fmt(f),
            Number::Float(value) => write!(f, "{value:?}"),
        }
    }
}

impl Number {
    /// The number as a float, rounded to nearest.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

/// The type of a buffer's elements or of a scalar, by the names that PTX and Rust share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Element {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    /// bfloat16: 8 exponent bits, 7 mantissa bits.
    Bf16,
    F32,
    F64,
    /// 8-bit float, 4 exponent bits, no infinities, largest finite 448.
    E4m3,
    /// 8-bit float, 5 exponent bits, largest finite 57344.
    E5m2,
}

impl Element {
    /// All of them.
    pub const ALL: [Element; 15] = [
        Element::Bool,
        Element::I8,
        Element::U8,
        Element::I16,
        Element::U16,
        Element::I32,
        Element::U32,
        Element::I64,
        Element::U64,
        Element::F16,
        Element::Bf16,
        Element::F32,
        Element::F64,
        Element::E4m3,
        Element::E5m2,
    ];

    /// The name in launch files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Element::Bool => "bool",
            Element::I8 => "i8",
            Element::U8 => "u8",
            Element::I16 => "i16",
            Element::U16 => "u16",
            Element::I32 => "i32",
            Element::U32 => "u32",
            Element::I64 => "i64",
            Element::U64 => "u64",
            Element::F16 => "f16",
            Element::Bf16 => "bf16",
            Element::F32 => "f32",
            Element::F64 => "f64",
            Element::E4m3 => "e4m3",
            Element::E5m2 => "e5m2",
        }
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }

    /// Bytes an element takes.
    pub fn size(self) -> usize {
        match self {
            Element::Bool | Element::I8 | Element::U8 | Element::E4m3 | Element::E5m2 => 1,
            Element::I16 | Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    /// Whether it is a floating type.
    pub fn is_float(self) -> bool {
        self.largest_float().is_some()
    }

    /// The type string of NumPy for it; NumPy has no bf16 and no 8-bit floats, whose bits stand as unsigned integers.
    pub fn numpy(self) -> &'static str {
        match self {
            Element::Bool => "|b1",
            Element::I8 => "|i1",
            Element::U8 | Element::E4m3 | Element::E5m2 => "|u1",
            Element::I16 => "<i2",
            Element::U16 | Element::Bf16 => "<u2",
            Element::I32 => "<i4",
            Element::U32 => "<u4",
            Element::I64 => "<i8",
            Element::U64 => "<u8",
            Element::F16 => "<f2",
            Element::F32 => "<f4",
            Element::F64 => "<f8",
        }
    }

    /// The smallest and largest value of an integer type.
    pub(super) fn integer_range(self) -> Option<(i128, i128)> {
        Some(match self {
            Element::Bool => (0, 1),
            Element::I8 => (i8::MIN.into(), i8::MAX.into()),
            Element::U8 => (0, u8::MAX.into()),
            Element::I16 => (i16::MIN.into(), i16::MAX.into()),
            Element::U16 => (0, u16::MAX.into()),
            Element::I32 => (i32::MIN.into(), i32::MAX.into()),
            Element::U32 => (0, u32::MAX.into()),
            Element::I64 => (i64::MIN.into(), i64::MAX.into()),
            Element::U64 => (0, u64::MAX.into()),
            _ => return None,
        })
    }

    /// The largest finite value of a floating type.
    pub(super) fn largest_float(self) -> Option<f64> {
        Some(match self {
            Element::F16 => f16::MAX.into(),
            Element::Bf16 => bf16::MAX.into(),
            Element::F32 => f32::MAX.into(),
            Element::F64 => f64::MAX,
            Element::E4m3 => 448.0,
            Element::E5m2 => 57_344.0,
            _ => return None,
        })
    }

    /// What the type can hold, for messages.
    pub(super) fn accepts(self) -> String {
        match (self.integer_range(), self.largest_float()) {
            (Some((least, most)), _) => format!("integers from {least} to {most}"),
            (_, most) => format!("numbers up to {:e}, and nan", most.unwrap_or_default()),
        }
    }

    /// Appends the bytes of `number`, floats rounded to nearest; says no to what the type cannot hold.
    pub(super) fn encode(self, number: Number, out: &mut Vec<u8>) -> Option<()> {
        if let Some((least, most)) = self.integer_range() {
            let Number::Integer(value) = number else { return None };
            if !(least..=most).contains(&value) {
                return None;
            }
            out.extend_from_slice(&value.to_le_bytes()[..self.size()]);
            return Some(());
        }
        let value = number.to_f64();
        let largest = self.largest_float()?;
        // Of the floating types only e4m3 has no infinity.
        if value.is_infinite() && self == Element::E4m3 || value.is_finite() && value.abs() > largest {
            return None;
        }
        match self {
            Element::F16 => out.extend_from_slice(&f16::from_f64(value).to_le_bytes()),
            Element::Bf16 => out.extend_from_slice(&bf16::from_f64(value).to_le_bytes()),
            Element::F32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
            Element::F64 => out.extend_from_slice(&value.to_le_bytes()),
            _ => out.push(self.small_float(value)),
        }
        Some(())
    }

    /// How many elements differ between two runs of them.
    pub(super) fn differ(self, a: &[u8], b: &[u8]) -> usize {
        a.chunks_exact(self.size()).zip(b.chunks_exact(self.size())).filter(|(a, b)| a != b).count()
    }

    /// The value of an element of a floating type; `None` of others.
    pub(super) fn decode_float(self, bytes: &[u8]) -> Option<f64> {
        Some(match self {
            Element::F16 => f16::from_le_bytes(bytes.try_into().ok()?).into(),
            Element::Bf16 => bf16::from_le_bytes(bytes.try_into().ok()?).into(),
            Element::F32 => f32::from_le_bytes(bytes.try_into().ok()?).into(),
            Element::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
            Element::E4m3 | Element::E5m2 => self.of_small(*bytes.first()?),
            _ => return None,
        })
    }

    /// The value of an 8-bit float, from the format's definition.
    fn of_small(self, bits: u8) -> f64 {
        let (mantissa_bits, bias) = if self == Element::E4m3 { (3, 7) } else { (2, 15) };
        let magnitude = bits & 0x7f;
        let exponent = i32::from(magnitude >> mantissa_bits);
        let fraction = f64::from(magnitude & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
        let value = match (self, magnitude) {
            (Element::E4m3, 0x7f) | (Element::E5m2, 0x7d..) => f64::NAN,
            (Element::E5m2, 0x7c) => f64::INFINITY,
            _ if exponent == 0 => fraction * 2f64.powi(1 - bias),
            _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
        };
        if bits & 0x80 != 0 { -value } else { value }
    }

    /// The 8-bit float nearest to `value`, ties to the even mantissa.
    fn small_float(self, value: f64) -> u8 {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if value.is_nan() {
            return sign | 0x7f;
        }
        let most = if self == Element::E4m3 { 0x7e } else { 0x7c };
        if value.is_infinite() {
            return sign | most;
        }
        // Magnitudes ascend with their bits.
        let (mut above, mut end) = (0, most);
        while above < end {
            let middle = above + (end - above) / 2;
            if self.of_small(middle) < value.abs() { above = middle + 1 } else { end = middle }
        }
        let below = above.saturating_sub(1);
        let (down, up) = (value.abs() - self.of_small(below), self.of_small(above) - value.abs());
        let nearest = if down < up || down == up && below & 1 == 0 { below } else { above };
        sign | nearest
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(element: Element, number: Number) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        element.encode(number, &mut out)?;
        Some(out)
    }

    #[test]
    fn every_pattern_of_an_8_bit_float_comes_back() {
        for element in [Element::E4m3, Element::E5m2] {
            for bits in 0..=255u8 {
                let value = element.of_small(bits);
                if !value.is_nan() {
                    assert_eq!(bytes(element, Number::Float(value)), Some(vec![bits]), "{element} {bits:#x}");
                }
            }
        }
        assert_eq!(Element::E4m3.of_small(0x7e), 448.0);
        assert_eq!(Element::E5m2.of_small(0x7b), 57_344.0);
    }

    #[test]
    fn floats_round_to_nearest_even() {
        // Between 16 and 18, and between 18 and 20.
        assert_eq!(bytes(Element::E4m3, Number::Integer(17)), bytes(Element::E4m3, Number::Integer(16)));
        assert_eq!(bytes(Element::E4m3, Number::Integer(19)), bytes(Element::E4m3, Number::Integer(20)));
        assert_eq!(bytes(Element::Bf16, Number::Float(1.0)), Some(vec![0x80, 0x3f]));
    }

    #[test]
    fn what_a_type_cannot_hold_is_refused() {
        assert_eq!(bytes(Element::U8, Number::Integer(256)), None);
        assert_eq!(bytes(Element::I8, Number::Integer(-128)), Some(vec![0x80]));
        assert_eq!(bytes(Element::I32, Number::Float(1.0)), None);
        assert_eq!(bytes(Element::E4m3, Number::Integer(449)), None);
        assert_eq!(bytes(Element::E4m3, Number::Float(f64::INFINITY)), None);
        assert_eq!(bytes(Element::F16, Number::Float(f64::INFINITY)), Some(vec![0, 0x7c]));
        assert_eq!(bytes(Element::U64, Number::Integer(u64::MAX.into())), Some(vec![0xff; 8]));
    }
}
