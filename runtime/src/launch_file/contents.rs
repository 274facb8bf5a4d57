//! The bytes of a buffer before the launch.

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};

use super::{Buffer, Element, Fill, Number, Problem, npy};

/// What a buffer holds: its extents, and its bytes unless they are undefined.
pub(super) struct Contents {
    pub shape: Vec<u64>,
    pub bytes: Option<Vec<u8>>,
}

/// Fills `buffer`, which may take up to `most` bytes.
pub(super) fn contents(buffer: &Buffer, folder: &Path, most: u64) -> Result<Contents, Problem> {
    let name = || buffer.name.clone();
    if let Fill::File(path) = &buffer.fill {
        return from_file(buffer, &folder.join(path), most);
    }
    let shape = buffer.shape.clone().unwrap_or_default();
    let count = count(buffer, &shape, most)?;
    let element = buffer.element;
    let mut bytes = Vec::with_capacity(count * element.size());
    let mut push = |number: Number| {
        element.encode(number, &mut bytes).ok_or_else(|| Problem::DoesNotFit {
            place: format!("buffer `{}`", buffer.name),
            given: number.to_string(),
            element: element.name(),
            accepted: element.accepts(),
        })
    };
    match &buffer.fill {
        Fill::Undefined | Fill::File(_) => return Ok(Contents { shape, bytes: None }),
        Fill::Constant(number) => {
            push(*number)?;
            bytes = bytes.repeat(count);
        }
        Fill::Iota => (0..count).try_for_each(|i| push(Number::Integer(i as i128)))?,
        Fill::Values(values) if values.len() == count => values.iter().try_for_each(|value| push(*value))?,
        Fill::Values(values) => {
            let what = format!("{} values are given for {count} elements", values.len());
            return Err(Problem::Contents { buffer: name(), what });
        }
        Fill::Uniform { least, most, seed } => {
            let mut random = ChaCha8Rng::seed_from_u64(*seed);
            match (element.integer_range(), least, most) {
                (Some(_), &Number::Integer(least), &Number::Integer(most)) => {
                    (0..count).try_for_each(|_| push(Number::Integer(random.random_range(least..=most))))?;
                }
                (Some(_), ..) => {
                    let what = format!("{element} takes whole numbers as ends of `uniform`");
                    return Err(Problem::Contents { buffer: name(), what });
                }
                _ => {
                    let (least, width) = (least.to_f64(), most.to_f64() - least.to_f64());
                    (0..count).try_for_each(|_| push(Number::Float(least + width * random.random::<f64>())))?;
                }
            }
        }
        Fill::Normal { mean, deviation, seed } => {
            let Some(largest) = element.largest_float() else {
                let what = format!("`normal` fills floats, and its elements are {element}; `uniform` fills integers");
                return Err(Problem::Contents { buffer: name(), what });
            };
            let normal = Normal::new(*mean, *deviation)
                .map_err(|error| Problem::Contents { buffer: name(), what: format!("`normal`: {error}") })?;
            let mut random = ChaCha8Rng::seed_from_u64(*seed);
            (0..count).try_for_each(|_| push(Number::Float(normal.sample(&mut random).clamp(-largest, largest))))?;
        }
    }
    Ok(Contents { shape, bytes: Some(bytes) })
}

/// Elements of a shape that is not too large.
fn count(buffer: &Buffer, shape: &[u64], most: u64) -> Result<usize, Problem> {
    let mut elements = 1u128;
    for extent in shape {
        // A 0 further on does not make a larger product right, but neither does it matter.
        elements = elements.saturating_mul(u128::from(*extent));
    }
    let bytes = elements.saturating_mul(buffer.element.size() as u128);
    if bytes > u128::from(most) {
        return Err(Problem::TooLarge { buffer: buffer.name.clone(), bytes, most });
    }
    if bytes == 0 {
        let what = format!("its shape {shape:?} has no elements; for an empty one pass a null pointer, {{ u64 = 0 }}");
        return Err(Problem::Contents { buffer: buffer.name.clone(), what });
    }
    Ok(elements as usize)
}

fn from_file(buffer: &Buffer, path: &Path, most: u64) -> Result<Contents, Problem> {
    let wrong = |what: String| Problem::Contents { buffer: buffer.name.clone(), what };
    let unread = |error| Problem::Read { buffer: buffer.name.clone(), path: path.into(), error };
    let metadata = std::fs::metadata(path).map_err(unread)?;
    if !metadata.is_file() {
        return Err(wrong(format!("`{}` is not a file", path.display())));
    }
    let len = metadata.len();
    // A header is small.
    if len > most.saturating_add(1 << 16) {
        return Err(Problem::TooLarge { buffer: buffer.name.clone(), bytes: len.into(), most });
    }
    let file = std::fs::read(path).map_err(unread)?;
    let path = path.display();
    let (shape, data) = if path.to_string().ends_with(".npy") {
        let header = npy::header(&file).map_err(|what| wrong(format!("`{path}`: {what}")))?;
        if !holds(&header.dtype, buffer.element) {
            let expected = buffer.element.numpy();
            let element = buffer.element;
            return Err(wrong(format!(
                "`{path}` holds `{}`, and {element} stands in files as `{expected}`",
                header.dtype
            )));
        }
        if let Some(shape) = buffer.shape.as_ref().filter(|shape| **shape != header.shape) {
            return Err(wrong(format!("`{path}` has shape {:?}, and the launch file says {shape:?}", header.shape)));
        }
        (header.shape, &file[header.data..])
    } else {
        (buffer.shape.clone().unwrap_or_default(), &file[..])
    };
    let expected = count(buffer, &shape, most)? * buffer.element.size();
    if data.len() != expected {
        let element = buffer.element;
        return Err(wrong(format!(
            "`{path}` has {} bytes of elements; {shape:?} of {element} takes {expected}",
            data.len()
        )));
    }
    Ok(Contents { shape, bytes: Some(data.to_vec()) })
}

/// Whether a file of NumPy's type string has elements of this type. Libraries that add bf16 to NumPy save it as raw bytes.
fn holds(dtype: &str, element: Element) -> bool {
    let raw = format!("V{}", element.size());
    let numpy = element.numpy();
    dtype == numpy
        || element.is_float() && dtype.trim_start_matches(['<', '|']) == raw
        || element.size() == 1 && dtype.trim_start_matches(['<', '|', '=']) == &numpy[1..]
}
