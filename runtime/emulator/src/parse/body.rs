//! The part of the parser that reads a kernel's body.

use std::collections::HashMap;

use super::ast::{Body, Class, Instruction, Operand, RegId};
use super::lexer::{Token, syntax};
use super::{Parser, describe};
use crate::error::{Error, Result};

/// Names of one `{ }`: registers, and labels (made unique by the scope's number).
#[derive(Default)]
struct Scope {
    number: usize,
    registers: HashMap<String, RegId>,
    /// `%r<16>`: prefix to first register and count.
    families: HashMap<String, (RegId, u32)>,
}

/// Registers a body may declare; NVRTC stays far below.
const MAX_REGISTERS: usize = 1 << 20;
/// Nested `{ }`; inline PTX uses one or two.
const MAX_SCOPES: usize = 256;

impl Parser<'_> {
    /// The opening brace is already behind.
    pub(super) fn body(&mut self) -> Result<Body> {
        let mut body = Body::default();
        let mut scopes = vec![Scope::default()];
        let mut made = 1;
        let mut loc = None;
        // Label operands are resolved once all scopes are known: (instruction, scopes it can see).
        let mut visible: Vec<Vec<usize>> = Vec::new();
        let mut chain = vec![0];
        while let Some(scope) = scopes.last_mut() {
            let Some((token, line)) = self.next() else {
                return Err(self.truncated());
            };
            match token {
                Token::Punct(b'{') => {
                    if scopes.len() >= MAX_SCOPES {
                        return Err(syntax(line, "scopes nested too deeply"));
                    }
                    scopes.push(Scope { number: made, ..Scope::default() });
                    chain.push(made);
                    made += 1;
                }
                Token::Punct(b'}') => {
                    scopes.pop();
                    chain.pop();
                }
                Token::Punct(b';') => {}
                Token::Word(".reg") => self.registers(scope, &mut body)?,
                Token::Word(".loc") => loc = Some(self.loc()?),
                Token::Word(".shared") => {
                    let v = self.variables()?;
                    body.shared.extend(v);
                }
                Token::Word(".local") => {
                    let v = self.variables()?;
                    body.local.extend(v);
                }
                Token::Word(".pragma") => self.skip_to_semicolon()?,
                Token::Word(".param") => {
                    return Err(Error::Unsupported {
                        line,
                        opcode: ".param".into(),
                        what: "calls are not supported; inline the function".into(),
                    });
                }
                Token::Word(w) if self.eat(b':') => {
                    let unique = label(w, scope.number);
                    if body.labels.insert(unique, body.instructions.len() as u32).is_some() {
                        return Err(syntax(line, &format!("label `{w}` stands here twice")));
                    }
                }
                Token::Word(_) | Token::Punct(b'@') => {
                    self.at -= 1;
                    let instruction = self.instruction(&scopes, loc)?;
                    body.instructions.push(instruction);
                    visible.push(chain.clone());
                }
                other => {
                    return Err(syntax(line, &format!("{} where an instruction was expected", describe(other))));
                }
            }
        }
        for (instruction, chain) in body.instructions.iter_mut().zip(visible) {
            for operand in &mut instruction.operands {
                if let Operand::Symbol(name, 0) = operand
                    && let Some(unique) =
                        chain.iter().rev().map(|&n| label(name, n)).find(|u| body.labels.contains_key(u))
                {
                    *name = unique;
                }
            }
        }
        Ok(body)
    }

    /// `.reg .b32 %r<16>, %x;`
    fn registers(&mut self, scope: &mut Scope, body: &mut Body) -> Result<()> {
        let line = self.line();
        let mut ty = self.word()?;
        if matches!(ty, ".v2" | ".v4") {
            return Err(syntax(line, "vector registers are not supported"));
        }
        let class = match ty {
            ".pred" => Class::Pred,
            ".b8" | ".u8" | ".s8" | ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => Class::B16,
            ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => Class::B32,
            ".b64" | ".u64" | ".s64" | ".f64" => Class::B64,
            ".b128" => Class::B128,
            other => return Err(syntax(line, &format!("`{other}` is not a register type"))),
        };
        loop {
            ty = self.word()?;
            let first = body.registers.len() as RegId;
            let count = if self.eat(b'<') {
                let n = self.int()?;
                self.expect(b'>')?;
                scope.families.insert(ty.into(), (first, n as u32));
                n
            } else {
                scope.registers.insert(ty.into(), first);
                1
            };
            if count < 0 || body.registers.len() as i128 + count > MAX_REGISTERS as i128 {
                return Err(syntax(line, &format!("{count} registers are too many")));
            }
            body.registers.extend(std::iter::repeat_n(class, count as usize));
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')
    }

    fn instruction(&mut self, scopes: &[Scope], loc: Option<u32>) -> Result<Instruction> {
        let line = self.line();
        let mut guard = None;
        if self.eat(b'@') {
            let negated = self.eat(b'!');
            let name = self.word()?;
            let register = find(scopes, name)
                .ok_or_else(|| syntax(line, &format!("guard `{name}` is not a declared register")))?;
            guard = Some((register, negated));
        }
        let opcode = self.word()?.to_string();
        let mut operands = Vec::new();
        while !self.eat(b';') {
            // A call's parentheses and a missing semicolon end up here too; both are errors.
            operands.push(self.operand(scopes, 0)?);
            if !self.eat(b',') && self.peek() != Some(Token::Punct(b';')) {
                let line = self.line();
                return Err(match self.peek() {
                    Some(t) => syntax(
                        line,
                        &format!("{} after an operand of `{opcode}`; `,` or `;` was expected", describe(t)),
                    ),
                    None => self.truncated(),
                });
            }
        }
        Ok(Instruction { guard, opcode, operands, line, loc })
    }

    fn operand(&mut self, scopes: &[Scope], depth: usize) -> Result<Operand> {
        let line = self.line();
        if depth > 4 {
            return Err(syntax(line, "operands nested too deeply"));
        }
        let Some((token, _)) = self.next() else {
            return Err(self.truncated());
        };
        let operand = match token {
            Token::Punct(b'-') => match self.next() {
                Some((Token::Int(v), _)) => Operand::Int(-v),
                Some((Token::F32(v), _)) => Operand::F32(v ^ (1 << 31)),
                Some((Token::F64(v), _)) => Operand::F64(v ^ (1 << 63)),
                _ => return Err(syntax(line, "a number was expected after `-`")),
            },
            Token::Int(v) => Operand::Int(v),
            Token::F32(v) => Operand::F32(v),
            Token::F64(v) => Operand::F64(v),
            Token::Punct(b'!') => {
                let name = self.word()?;
                Operand::Not(
                    find(scopes, name).ok_or_else(|| syntax(line, &format!("`{name}` is not a declared register")))?,
                )
            }
            Token::Punct(b'{') => {
                let mut items = Vec::new();
                while !self.eat(b'}') {
                    items.push(self.operand(scopes, depth + 1)?);
                    if !self.eat(b',') && self.peek() != Some(Token::Punct(b'}')) {
                        return Err(syntax(self.line(), "`,` or `}` was expected in a vector operand"));
                    }
                }
                Operand::Vector(items)
            }
            Token::Punct(b'[') => {
                let base = self.operand(scopes, depth + 1)?;
                let offset = self.offset()?;
                if self.eat(b',') {
                    if self.peek() == Some(Token::Punct(b'{'))
                        && let Operand::Vector(coordinates) = self.operand(scopes, depth + 1)?
                        && self.eat(b']')
                    {
                        return Ok(Operand::Tensor(Box::new(Operand::Address(Box::new(base), offset)), coordinates));
                    }
                    while !self.eat(b']') {
                        self.next().ok_or_else(|| self.truncated())?;
                    }
                    return Ok(Operand::AddressList);
                }
                self.expect(b']')?;
                match base {
                    Operand::Symbol(name, inner) => {
                        Operand::Address(Box::new(Operand::Symbol(name, inner + offset)), 0)
                    }
                    base => Operand::Address(Box::new(base), offset),
                }
            }
            Token::Word("_") => Operand::Sink,
            Token::Word(w) => match find(scopes, w) {
                Some(register) => Operand::Reg(register),
                None if w == "WARP_SZ" => Operand::Int(32),
                None if w.starts_with('%') => Operand::Special(w.into()),
                None => {
                    let offset = if depth == 0 { self.offset()? } else { 0 };
                    Operand::Symbol(w.into(), offset)
                }
            },
            other => {
                return Err(syntax(line, &format!("{} where an operand was expected", describe(other))));
            }
        };
        if self.eat(b'|') {
            let second = self.operand(scopes, depth + 1)?;
            return Ok(Operand::Pair(Box::new(operand), Box::new(second)));
        }
        Ok(operand)
    }

    fn offset(&mut self) -> Result<i64> {
        let line = self.line();
        let negative = match self.peek() {
            Some(Token::Punct(b'+')) => false,
            Some(Token::Punct(b'-')) => true,
            _ => return Ok(0),
        };
        self.at += 1;
        let value = self.int()?;
        i64::try_from(if negative { -value } else { value })
            .map_err(|_| syntax(line, "an offset that does not fit 64 bits"))
    }
}

fn label(name: &str, scope: usize) -> String {
    format!("{name}@{scope}")
}

fn find(scopes: &[Scope], name: &str) -> Option<RegId> {
    scopes.iter().rev().find_map(|scope| {
        scope.registers.get(name).copied().or_else(|| {
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let (first, count) = *scope.families.get(prefix)?;
            let digits = &name[prefix.len()..];
            let index =
                digits.parse::<u32>().ok().filter(|&n| n < count && (digits.len() == 1 || !digits.starts_with('0')))?;
            Some(first + index)
        })
    })
}
