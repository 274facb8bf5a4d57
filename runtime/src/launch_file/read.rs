//! TOML to a [`LaunchFile`], key by key, so that every mistake has its place and its own words.

use std::ops::Range;

use lathe_emulator::{Effect, TensorSwizzle};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Argument, Buffer, Element, Fill, LaunchFile, LaunchFileError, Number, Problem, Tensor, Value};

type Result<T> = std::result::Result<T, LaunchFileError>;
type Item<'a> = Spanned<DeValue<'a>>;

pub(super) fn file(text: &str) -> Result<LaunchFile> {
    let table = DeTable::parse(text).map_err(|error| LaunchFileError {
        problem: Box::new(Problem::Toml { message: error.message().to_owned() }),
        span: error.span(),
    })?;
    let place = "the launch file";
    let table = Table { place: place.into(), span: 0..0, table: table.get_ref() };
    table.only(&["entry", "grid", "block", "dynamic_shared", "args", "buffers"])?;

    let mut buffers = Vec::new();
    if let Some(item) = table.get("buffers") {
        let described = Table::of(item, "`buffers`".into())?;
        for (name, item) in described.table.iter() {
            // Results are written to files of these names.
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.get_ref().is_empty() || !name.get_ref().chars().all(plain) {
                let (place, given) = ("the name of a buffer".into(), format!("\"{}\"", name.get_ref()));
                let problem = Problem::Value { place, given, accepted: "letters, digits, `_` and `-`".into() };
                return Err(problem.at(name.span()));
            }
            buffers.push(buffer(name.get_ref(), item)?);
        }
    }
    let Some(grid) = table.get("grid") else {
        let problem = Problem::Missing { place: place.into(), key: "grid", why: "CTAs along x, y, z" };
        return Err(LaunchFileError { problem: Box::new(problem), span: None });
    };
    let args = table.get("args");
    Ok(LaunchFile {
        entry: table.get("entry").map(|item| string(item, "`entry`")).transpose()?.map(str::to_owned),
        grid: extents(grid, "`grid`")?,
        block: table.get("block").map(|item| extents(item, "`block`")).transpose()?,
        dynamic_shared: table.get("dynamic_shared").map_or(Ok(0), |item| unsigned(item, "`dynamic_shared`"))?,
        args: args.map_or(Ok(Vec::new()), |item| arguments(item, "`args`", &buffers))?,
        args_span: args.map(Spanned::span),
        buffers,
    })
}

/// A table, with what messages call it.
struct Table<'t, 'i> {
    place: String,
    span: Range<usize>,
    table: &'t DeTable<'i>,
}

impl<'t, 'i> Table<'t, 'i> {
    fn of(item: &'t Item<'i>, place: String) -> Result<Self> {
        let DeValue::Table(table) = item.get_ref() else { return Err(refused(item, &place, "a table")) };
        Ok(Table { place, span: item.span(), table })
    }

    fn get(&self, key: &str) -> Option<&'t Item<'i>> {
        self.table.get(key)
    }

    fn only(&self, known: &[&str]) -> Result<()> {
        match self.table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
            None => Ok(()),
            Some(key) => {
                let known = list(known.iter().copied());
                let problem = Problem::UnknownKey { key: key.get_ref().to_string(), place: self.place.clone(), known };
                Err(problem.at(key.span()))
            }
        }
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// What stands there, for messages.
fn given(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Array(items) => format!("an array of {}", items.len()),
        DeValue::Table(_) => "a table".into(),
    }
}

fn refused(item: &Item<'_>, place: &str, accepted: &str) -> LaunchFileError {
    let problem = Problem::Value { place: place.into(), given: given(item.get_ref()), accepted: accepted.into() };
    problem.at(item.span())
}

fn string<'t>(item: &'t Item<'_>, place: &str) -> Result<&'t str> {
    match item.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => Err(refused(item, place, "a string")),
    }
}

fn array<'t, 'i>(item: &'t Item<'i>, place: &str, accepted: &str) -> Result<&'t [Item<'i>]> {
    match item.get_ref() {
        DeValue::Array(items) => Ok(items),
        _ => Err(refused(item, place, accepted)),
    }
}

fn number(item: &Item<'_>, place: &str) -> Result<Number> {
    let parsed = match item.get_ref() {
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok().map(Number::Integer),
        DeValue::Float(number) => number.as_str().parse().ok().map(Number::Float),
        DeValue::Boolean(value) => Some(Number::Integer((*value).into())),
        _ => None,
    };
    parsed.ok_or_else(|| refused(item, place, "a number"))
}

fn unsigned<T: TryFrom<i128>>(item: &Item<'_>, place: &str) -> Result<T> {
    let most = if size_of::<T>() == 8 { u64::MAX } else { u32::MAX.into() };
    let accepted = || refused(item, place, &format!("a whole number from 0 to {most}"));
    match number(item, place)? {
        Number::Integer(value) => T::try_from(value).map_err(|_| accepted()),
        Number::Float(_) => Err(accepted()),
    }
}

/// One to three numbers; what is left out is 1.
fn extents(item: &Item<'_>, place: &str) -> Result<[u32; 3]> {
    if !matches!(item.get_ref(), DeValue::Array(_)) {
        return Ok([unsigned(item, place)?, 1, 1]);
    }
    let accepted = "a number, or an array of one to three";
    let items = array(item, place, accepted)?;
    if !(1..=3).contains(&items.len()) {
        return Err(refused(item, place, accepted));
    }
    let mut out = [1; 3];
    for (extent, item) in out.iter_mut().zip(items) {
        *extent = unsigned(item, place)?;
    }
    Ok(out)
}

fn buffer(name: &str, item: &Item<'_>) -> Result<Buffer> {
    let table = Table::of(item, format!("buffer `{name}`"))?;
    table.only(&["dtype", "shape", "fill", "access", "before_wait"])?;
    let place = |key: &str| format!("`{key}` of buffer `{name}`");

    let Some(dtype) = table.get("dtype") else {
        let why = "the type of its elements, such as \"bf16\"";
        return Err(Problem::Missing { place: table.place, key: "dtype", why }.at(table.span));
    };
    let element = Element::named(string(dtype, &place("dtype"))?).ok_or_else(|| {
        refused(dtype, &place("dtype"), &format!("one of {}", list(Element::ALL.map(Element::name).into_iter())))
    })?;
    let shape = table.get("shape").map(|item| {
        let items = array(item, &place("shape"), "an array of extents, outermost first")?;
        items.iter().map(|item| unsigned(item, &place("shape"))).collect::<Result<Vec<u64>>>()
    });
    let fill = table.get("fill").map_or(Ok(Fill::Undefined), |item| fill(item, &place("fill")))?;
    let shape = shape.transpose()?;
    let says_its_shape = matches!(&fill, Fill::File(path) if path.extension().is_some_and(|kind| kind == "npy"));
    if shape.is_none() && !says_its_shape {
        let why = "extents, outermost first; only a .npy file says them itself";
        return Err(Problem::Missing { place: table.place, key: "shape", why }.at(table.span));
    }
    let access = table.get("access").map(|item| access(item, &place("access"))).transpose()?;
    let before_wait = match table.get("before_wait").map(|item| (item, item.get_ref())) {
        None => false,
        Some((_, DeValue::Boolean(value))) if access.is_some() => *value,
        Some((item, DeValue::Boolean(_))) => {
            return Err(refused(item, &place("before_wait"), "it only beside `access`: nothing else is checked"));
        }
        Some((item, _)) => return Err(refused(item, &place("before_wait"), "true or false")),
    };
    Ok(Buffer { name: name.into(), element, shape, fill, access, before_wait, span: item.span() })
}

fn access(item: &Item<'_>, place: &str) -> Result<Effect> {
    Ok(match string(item, place)? {
        "read" => Effect::Read,
        "write_all" => Effect::WriteAll,
        "write_part" => Effect::WritePart,
        "read_write" => Effect::ReadWrite,
        _ => return Err(refused(item, place, "one of `read`, `write_all`, `write_part`, `read_write`")),
    })
}

const FILLS: &str = "\"undefined\", \"zeros\", \"iota\", { constant = 1.5 }, { values = [1, 2] }, { uniform = [-1, 1], \
                     seed = 7 }, { normal = [0, 1], seed = 7 } or { file = \"x.npy\" }";

fn fill(item: &Item<'_>, place: &str) -> Result<Fill> {
    let DeValue::Table(_) = item.get_ref() else {
        return Ok(match item.get_ref() {
            DeValue::String(name) if name == "undefined" => Fill::Undefined,
            DeValue::String(name) if name == "zeros" => Fill::Constant(Number::Integer(0)),
            DeValue::String(name) if name == "iota" => Fill::Iota,
            _ => return Err(refused(item, place, FILLS)),
        });
    };
    let table = Table::of(item, place.into())?;
    table.only(&["constant", "values", "uniform", "normal", "file", "seed"])?;
    let kinds: Vec<_> = table.table.iter().filter(|(key, _)| key.get_ref() != "seed").collect();
    let [(kind, contents)] = kinds[..] else { return Err(refused(item, place, FILLS)) };
    let random = matches!(kind.get_ref().as_ref(), "uniform" | "normal");
    let seed = match table.get("seed") {
        None => 0,
        Some(seed) if random => unsigned(seed, place)?,
        Some(seed) => return Err(refused(seed, &format!("`seed` in {place}"), "it only beside `uniform` or `normal`")),
    };
    let pair = |accepted: &str| match array(contents, place, accepted)? {
        [a, b] => Ok((number(a, place)?, number(b, place)?)),
        _ => Err(refused(contents, place, accepted)),
    };
    Ok(match kind.get_ref().as_ref() {
        "constant" => Fill::Constant(number(contents, place)?),
        "values" => {
            let items = array(contents, place, "an array of numbers")?;
            Fill::Values(items.iter().map(|item| number(item, place)).collect::<Result<_>>()?)
        }
        "uniform" => {
            let accepted = "[least, most] with least <= most";
            let (least, most) = pair(accepted)?;
            // Written so that a NaN is refused too.
            if !(least.to_f64() <= most.to_f64() && least.to_f64().is_finite() && most.to_f64().is_finite()) {
                return Err(refused(contents, place, accepted));
            }
            Fill::Uniform { least, most, seed }
        }
        "normal" => {
            let accepted = "[mean, standard deviation], finite, the deviation not negative";
            let (mean, deviation) = pair(accepted)?;
            let (mean, deviation) = (mean.to_f64(), deviation.to_f64());
            if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) {
                return Err(refused(contents, place, accepted));
            }
            Fill::Normal { mean, deviation, seed }
        }
        _ => Fill::File(string(contents, place)?.into()),
    })
}

fn arguments(item: &Item<'_>, place: &str, buffers: &[Buffer]) -> Result<Vec<Argument>> {
    let items = array(item, place, "an array with one item for each parameter")?;
    items.iter().map(|item| argument(item, buffers)).collect()
}

fn argument(item: &Item<'_>, buffers: &[Buffer]) -> Result<Argument> {
    let accepted = "a buffer's name, { buffer = \"x\", offset = 512 }, a scalar such as { i32 = 5 }, { struct = [..] } or a tensor map, \
         { tensor = \"x\", box = [64, 128], swizzle = 128 }";
    let span = item.span();
    if let DeValue::String(name) = item.get_ref() {
        return Ok(Argument { value: Value::Buffer { buffer: find(name, item, buffers)?, offset: 0 }, span });
    }
    let DeValue::Table(table) = item.get_ref() else { return Err(refused(item, "an argument", accepted)) };
    if let Some(name) = table.get("buffer") {
        Table::of(item, "an argument".into())?.only(&["buffer", "offset"])?;
        let buffer = find(string(name, "`buffer` of an argument")?, name, buffers)?;
        let offset = table.get("offset").map_or(Ok(0), |offset| unsigned(offset, "`offset` of an argument"))?;
        return Ok(Argument { value: Value::Buffer { buffer, offset }, span });
    }
    if let Some(name) = table.get("tensor") {
        return Ok(Argument { value: Value::Tensor(tensor(item, name, buffers)?), span });
    }
    let mut keys = table.iter();
    let (Some((key, contents)), None) = (keys.next(), keys.next()) else {
        return Err(refused(item, "an argument", accepted));
    };
    if key.get_ref() == "struct" {
        return Ok(Argument { value: Value::Struct(arguments(contents, "`struct`", buffers)?), span });
    }
    let Some(element) = Element::named(key.get_ref()) else {
        let known =
            format!("`buffer`, `struct`, `tensor` or one of {}", list(Element::ALL.map(Element::name).into_iter()));
        let problem = Problem::UnknownKey { key: key.get_ref().to_string(), place: "an argument".into(), known };
        return Err(problem.at(key.span()));
    };
    let number = number(contents, "a scalar")?;
    if element.encode(number, &mut Vec::new()).is_none() {
        let (element, accepted) = (element.name(), element.accepts());
        let problem = Problem::DoesNotFit { place: "a scalar".into(), given: number.to_string(), element, accepted };
        return Err(problem.at(contents.span()));
    }
    Ok(Argument { value: Value::Scalar { element, number }, span })
}

fn tensor(item: &Item<'_>, name: &Item<'_>, buffers: &[Buffer]) -> Result<Tensor> {
    let table = Table::of(item, "a tensor map".into())?;
    table.only(&["tensor", "offset", "dims", "strides", "box", "swizzle"])?;
    fn numbers<T: TryFrom<i128>>(item: &Item<'_>, place: &str) -> Result<Vec<T>> {
        let items = array(item, place, "an array, outermost dimension first")?;
        items.iter().map(|item| unsigned(item, place)).collect()
    }
    let Some(extents) = table.get("box") else {
        let why = "elements that a copy moves along each dimension, outermost first";
        return Err(Problem::Missing { place: table.place, key: "box", why }.at(table.span));
    };
    let swizzle = match table.get("swizzle") {
        None => TensorSwizzle::None,
        Some(bytes) => match unsigned::<u32>(bytes, "`swizzle` of a tensor map")? {
            0 => TensorSwizzle::None,
            32 => TensorSwizzle::B32,
            64 => TensorSwizzle::B64,
            128 => TensorSwizzle::B128,
            _ => return Err(refused(bytes, "`swizzle` of a tensor map", "0, 32, 64 or 128 bytes")),
        },
    };
    Ok(Tensor {
        buffer: find(string(name, "`tensor` of an argument")?, name, buffers)?,
        offset: table.get("offset").map_or(Ok(0), |offset| unsigned(offset, "`offset` of a tensor map"))?,
        dims: table.get("dims").map(|dims| numbers(dims, "`dims` of a tensor map")).transpose()?,
        strides: table.get("strides").map(|strides| numbers(strides, "`strides` of a tensor map")).transpose()?,
        box_dims: numbers(extents, "`box` of a tensor map")?,
        swizzle,
    })
}

fn find(name: &str, item: &Item<'_>, buffers: &[Buffer]) -> Result<usize> {
    buffers.iter().position(|buffer| buffer.name == name).ok_or_else(|| {
        let known = list(buffers.iter().map(|buffer| buffer.name.as_str()));
        Problem::NoBuffer { name: name.into(), known }.at(item.span())
    })
}
