//! PTX text to a [`Module`].

pub(crate) mod ast;
mod body;
mod lexer;

use std::collections::HashMap;
use std::sync::Arc;

use crate::decode::{self, Kernel};
use crate::error::{Error, Result};
use ast::{Body, Entry, Loc, Param, SourceLocation, Variable};
use lexer::{Token, syntax};

/// The newest PTX ISA version that the parser was written against.
const NEWEST_VERSION: (u32, u32) = (9, 9);

/// Bytes of a variable; no device has more memory.
const MOST_BYTES: u64 = 1 << 40;

/// A parsed PTX file: its kernels, variables and source locations.
#[derive(Debug, Clone)]
pub struct Module {
    version: (u32, u32),
    target: String,
    entries: Vec<Entry>,
    pub(crate) shared: Vec<Variable>,
    pub(crate) global: Vec<Variable>,
    pub(crate) constant: Vec<Variable>,
    pub(crate) locations: Arc<Locations>,
}

/// The `.file` and `.loc` directives of a module.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    files: HashMap<u32, String>,
    locs: Vec<Loc>,
}

impl Locations {
    /// The chain of `.loc` lines, the innermost first, then outwards along `inlined_at`.
    pub(crate) fn chain(&self, loc: Option<u32>) -> Vec<SourceLocation> {
        let mut out = Vec::new();
        let mut next = loc;
        while let Some(loc) = next.and_then(|i| self.locs.get(i as usize)) {
            let file = self.files.get(&loc.file).cloned().unwrap_or_default();
            out.push(SourceLocation { file, line: loc.line, column: loc.column });
            // An inlined_at always points to an earlier entry, so the walk ends.
            next = loc.inlined_at;
        }
        out
    }
}

impl Module {
    /// Reads PTX text.
    ///
    /// # Errors
    /// [`Error::NotUtf8`], [`Error::Syntax`] or [`Error::Header`], each with its line. Opcodes are looked at by [`Module::entry`].
    pub fn parse(ptx: impl AsRef<[u8]>) -> Result<Self> {
        // NVRTC's buffer ends with a NUL.
        let bytes = ptx.as_ref();
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        let text = std::str::from_utf8(bytes).map_err(|e| Error::NotUtf8 {
            line: 1 + bytes[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count() as u32,
        })?;
        Parser { tokens: lexer::tokens(text)?, at: 0, by_place: HashMap::new(), locations: Locations::default() }
            .module()
    }

    /// PTX ISA version, as (major, minor).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The first word of `.target`, such as `sm_120a`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Names of the kernels, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.name.as_str())
    }

    /// Decodes a kernel, ready to launch.
    ///
    /// # Errors
    /// [`Error::MissingEntry`]; [`Error::UnknownOpcode`] or [`Error::Unsupported`] with the opcode and its line.
    pub fn entry(&self, name: &str) -> Result<Kernel> {
        let entry = self.entries.iter().find(|e| e.name == name).ok_or_else(|| Error::MissingEntry {
            name: name.into(),
            available: self.entries().map(String::from).collect(),
        })?;
        decode::kernel(self, entry)
    }
}

struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
    by_place: HashMap<(u32, u32, u32), u32>,
    locations: Locations,
}

impl<'a> Parser<'a> {
    fn module(mut self) -> Result<Module> {
        let version = self.version()?;
        let target = self.target()?;
        let (mut entries, mut shared, mut global, mut constant) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        while let Some((token, line)) = self.next() {
            match token {
                Token::Word(".address_size") => {
                    if self.int()? != 64 {
                        return Err(Error::Header {
                            line,
                            what: ".address_size is not 64; 32-bit PTX is not supported".into(),
                        });
                    }
                }
                Token::Word(".visible" | ".extern" | ".weak" | ".common" | ".alias") => {}
                Token::Word(".entry") => entries.push(self.entry()?),
                Token::Word(".func") => self.skip_function()?,
                Token::Word(".file") => self.file()?,
                Token::Word(".section") => self.skip_section()?,
                Token::Word(".pragma") => self.skip_to_semicolon()?,
                Token::Word(".shared") => shared.extend(self.variables()?),
                Token::Word(".global") => global.extend(self.variables()?),
                Token::Word(".const") => constant.extend(self.variables()?),
                other => {
                    return Err(syntax(line, &format!("{} where a directive was expected", describe(other))));
                }
            }
        }
        Ok(Module { version, target, entries, shared, global, constant, locations: Arc::new(self.locations) })
    }

    fn version(&mut self) -> Result<(u32, u32)> {
        let line = self.line();
        let missing =
            || Error::Header { line, what: "PTX begins with `.version MAJOR.MINOR`, which is missing".into() };
        let (Some((Token::Word(".version"), _)), Some((Token::F64(bits), _))) = (self.next(), self.next()) else {
            return Err(missing());
        };
        let value = f64::from_bits(bits);
        let version = (value as u32, ((value - value.floor()) * 10.0).round() as u32);
        if !((3, 0)..=NEWEST_VERSION).contains(&version) {
            let (major, minor) = NEWEST_VERSION;
            return Err(Error::Header {
                line,
                what: format!(".version {value} is not supported; 3.0 to {major}.{minor} are"),
            });
        }
        Ok(version)
    }

    fn target(&mut self) -> Result<String> {
        let line = self.line();
        let missing = || Error::Header { line, what: "`.target sm_XY` must follow the version".into() };
        let (Some((Token::Word(".target"), _)), Some((Token::Word(target), _))) = (self.next(), self.next()) else {
            return Err(missing());
        };
        let number = target.strip_prefix("sm_").map(|t| t.trim_end_matches(['a', 'f']));
        if number.and_then(|n| n.parse::<u32>().ok()).is_none_or(|n| n < 50) {
            return Err(Error::Header {
                line,
                what: format!(".target {target} is not supported; sm_50 and later are"),
            });
        }
        while self.eat(b',') {
            self.next();
        }
        Ok(target.into())
    }

    fn entry(&mut self) -> Result<Entry> {
        let name = self.word()?.to_string();
        let mut params = Vec::new();
        if self.eat(b'(') {
            while !self.eat(b')') {
                let line = self.line();
                let word = self.word()?;
                if word != ".param" {
                    return Err(syntax(line, &format!("`{word}` where a .param was expected")));
                }
                let v = self.variable()?;
                params.push(Param { name: v.name, ty: v.ty, size: v.size as usize, align: v.align as usize });
                self.eat(b',');
            }
        }
        let (mut required_block, mut max_block) = (None, None);
        loop {
            let line = self.line();
            match self.next() {
                Some((Token::Punct(b'{'), _)) => break,
                Some((Token::Word(".reqntid"), _)) => required_block = Some(self.triple()?),
                Some((Token::Word(".maxntid"), _)) => max_block = Some(self.triple()?.iter().product()),
                Some((Token::Word(".minnctapersm" | ".maxnreg" | ".maxclusterrank" | ".reqnctapercluster"), _)) => {
                    self.triple()?;
                }
                Some((Token::Word(".explicitcluster" | ".blocksareclusters"), _)) => {}
                Some((Token::Word(".pragma"), _)) => self.skip_to_semicolon()?,
                Some((other, _)) => {
                    return Err(syntax(line, &format!("{} in the head of entry `{name}`", describe(other))));
                }
                None => return Err(self.truncated()),
            }
        }
        let body: Body = self.body()?;
        Ok(Entry { name, params, required_block, max_block, body })
    }

    fn triple(&mut self) -> Result<[u32; 3]> {
        let mut out = [1; 3];
        for slot in &mut out {
            *slot = self.int()? as u32;
            if !self.eat(b',') {
                break;
            }
        }
        Ok(out)
    }

    /// Device functions are not executed: a `call` to one is refused where it stands.
    fn skip_function(&mut self) -> Result<()> {
        loop {
            match self.next() {
                Some((Token::Punct(b';'), _)) => return Ok(()),
                Some((Token::Punct(b'{'), _)) => return self.skip_braces(),
                Some(_) => {}
                None => return Err(self.truncated()),
            }
        }
    }

    fn skip_section(&mut self) -> Result<()> {
        while !self.eat(b'{') {
            self.next().ok_or_else(|| self.truncated())?;
        }
        self.skip_braces()
    }

    /// The opening brace is already behind.
    fn skip_braces(&mut self) -> Result<()> {
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some((Token::Punct(b'{'), _)) => depth += 1,
                Some((Token::Punct(b'}'), _)) => depth -= 1,
                Some(_) => {}
                None => return Err(self.truncated()),
            }
        }
        Ok(())
    }

    fn skip_to_semicolon(&mut self) -> Result<()> {
        while !self.eat(b';') {
            self.next().ok_or_else(|| self.truncated())?;
        }
        Ok(())
    }

    fn file(&mut self) -> Result<()> {
        let index = self.int()? as u32;
        let line = self.line();
        let Some((Token::Str(name), _)) = self.next() else {
            return Err(syntax(line, ".file takes a number and a quoted name"));
        };
        self.locations.files.insert(index, name.to_string());
        while self.eat(b',') {
            self.int()?;
        }
        Ok(())
    }

    fn loc(&mut self) -> Result<u32> {
        let (file, line, column) = (self.int()? as u32, self.int()? as u32, self.int()? as u32);
        let mut inlined_at = None;
        while self.eat(b',') {
            match self.word()? {
                "function_name" => {
                    self.word()?;
                    if self.eat(b'+') {
                        self.int()?;
                    }
                }
                "inlined_at" => {
                    let place = (self.int()? as u32, self.int()? as u32, self.int()? as u32);
                    // The compiler prints the caller's own .loc, with its own inlined_at, before the callee's.
                    inlined_at = Some(match self.by_place.get(&place) {
                        Some(&loc) => loc,
                        None => self.add_loc(Loc { file: place.0, line: place.1, column: place.2, inlined_at: None }),
                    });
                }
                other => {
                    let line = self.line();
                    return Err(syntax(line, &format!("`{other}` in .loc; function_name and inlined_at are known")));
                }
            }
        }
        Ok(self.add_loc(Loc { file, line, column, inlined_at }))
    }

    fn add_loc(&mut self, loc: Loc) -> u32 {
        let locs = &mut self.locations.locs;
        let place = (loc.file, loc.line, loc.column);
        if let Some(&known) = self.by_place.get(&place).filter(|&&i| locs[i as usize] == loc) {
            return known;
        }
        locs.push(loc);
        let index = locs.len() as u32 - 1;
        self.by_place.insert(place, index);
        index
    }

    /// `.align 16 .b8 a[64] = {1, 2}, b;`
    fn variables(&mut self) -> Result<Vec<Variable>> {
        let first = self.variable()?;
        let out = vec![first];
        let line = self.line();
        if !self.eat(b';') {
            return Err(syntax(line, "a variable declaration ends with `;`, one variable a line"));
        }
        Ok(out)
    }

    /// A declaration up to, not including, `;` or `,`.
    fn variable(&mut self) -> Result<Variable> {
        let (mut align, mut element, mut count_in_vector) = (0u32, 0u64, 1u64);
        let mut ty = String::new();
        let name = loop {
            let line = self.line();
            let word = self.word()?;
            match word {
                ".align" => align = self.int()? as u32,
                ".ptr" | ".global" | ".const" | ".shared" | ".local" => {
                    // `.ptr .global .align 1` describes the pointee, not the parameter.
                    if word == ".ptr" {
                        while matches!(
                            self.peek(),
                            Some(Token::Word(".global" | ".const" | ".shared" | ".local" | ".align"))
                        ) {
                            if self.word()? == ".align" {
                                self.int()?;
                            }
                        }
                    }
                }
                ".v2" => count_in_vector = 2,
                ".v4" => count_in_vector = 4,
                ".attribute" => {
                    self.eat(b'(');
                    while !self.eat(b')') {
                        self.next().ok_or_else(|| self.truncated())?;
                    }
                }
                w if w.starts_with('.') => {
                    element =
                        type_bytes(w).ok_or_else(|| syntax(line, &format!("`{w}` is not a type of a variable")))?;
                    ty = w.to_string();
                }
                w => break w.to_string(),
            }
        };
        element *= count_in_vector;
        let (mut count, mut open) = (1u64, false);
        while self.eat(b'[') {
            if self.eat(b']') {
                open = true;
                continue;
            }
            let n = self.int()?;
            count = u64::try_from(n)
                .ok()
                .and_then(|n| count.checked_mul(n))
                .ok_or_else(|| syntax(self.line(), "an array that is too large"))?;
            self.expect(b']')?;
        }
        let mut init = Vec::new();
        if self.eat(b'=') {
            self.initialiser(element.max(1) as usize, &mut init)?;
        }
        let size = if open && init.is_empty() {
            0
        } else if open {
            init.len() as u64
        } else {
            let bytes = count.checked_mul(element).filter(|&bytes| bytes <= MOST_BYTES);
            bytes.ok_or_else(|| syntax(self.line(), "an array that is too large"))?
        };
        Ok(Variable { name, align: align.max(element as u32).max(1), size, init, ty })
    }

    fn initialiser(&mut self, element: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.eat(b'{') {
            while !self.eat(b'}') {
                self.initialiser(element, out)?;
                self.eat(b',');
            }
            return Ok(());
        }
        let line = self.line();
        let negative = self.eat(b'-');
        let bytes = match self.next() {
            Some((Token::Int(v), _)) => (if negative { -v } else { v }).to_le_bytes(),
            Some((Token::F32(bits), _)) => u128::from(bits).to_le_bytes(),
            Some((Token::F64(bits), _)) => u128::from(bits).to_le_bytes(),
            _ => return Err(syntax(line, "only numbers can initialise a variable")),
        };
        out.extend_from_slice(&bytes[..element.min(16)]);
        Ok(())
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|t| t.0)
    }

    fn next(&mut self) -> Option<(Token<'a>, u32)> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    /// The line of the next token, or of the last.
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |t| t.1)
    }

    fn eat(&mut self, c: u8) -> bool {
        let found = self.peek() == Some(Token::Punct(c));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, c: u8) -> Result<()> {
        let line = self.line();
        match self.next() {
            Some((Token::Punct(p), _)) if p == c => Ok(()),
            Some((other, _)) => Err(syntax(line, &format!("{} where `{}` was expected", describe(other), c as char))),
            None => Err(self.truncated()),
        }
    }

    fn word(&mut self) -> Result<&'a str> {
        let line = self.line();
        match self.next() {
            Some((Token::Word(w), _)) => Ok(w),
            Some((other, _)) => Err(syntax(line, &format!("{} where a name was expected", describe(other)))),
            None => Err(self.truncated()),
        }
    }

    fn int(&mut self) -> Result<i128> {
        let line = self.line();
        let negative = self.eat(b'-');
        match self.next() {
            Some((Token::Int(v), _)) => Ok(if negative { -v } else { v }),
            Some((other, _)) => Err(syntax(line, &format!("{} where an integer was expected", describe(other)))),
            None => Err(self.truncated()),
        }
    }

    fn truncated(&self) -> Error {
        syntax(self.line(), "the text ends in the middle of a declaration; is the file truncated?")
    }
}

fn describe(token: Token<'_>) -> String {
    match token {
        Token::Word(w) => format!("`{w}`"),
        Token::Int(v) => format!("`{v}`"),
        Token::F32(_) | Token::F64(_) => "a floating-point number".into(),
        Token::Str(s) => format!("\"{s}\""),
        Token::Punct(c) => format!("`{}`", c as char),
    }
}

fn type_bytes(word: &str) -> Option<u64> {
    Some(match word {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}
