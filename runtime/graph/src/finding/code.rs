//! The finding codes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

macro_rules! codes {
    ($($code:ident $title:literal $explain:literal)*) => {
        /// What kind of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $title] $code,)*
        }

        impl Code {
            /// All codes, in order.
            pub const ALL: &[Code] = &[$(Code::$code),*];

            /// A few words.
            pub fn title(self) -> &'static str {
                match self { $(Self::$code => $title,)* }
            }

            /// Why it is wrong, in a sentence or two.
            pub fn explain(self) -> &'static str {
                match self { $(Self::$code => $explain,)* }
            }

            /// `E1` to `E13`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => stringify!($code),)* }
            }
        }
    };
}

codes! {
    E1 "race on one buffer"
       "two nodes use the same bytes of one buffer, one of them writes, and nothing orders them"
    E2 "race through shared bytes"
       "two buffers share bytes, nodes use them without an order, and one of them writes"
    E3 "use outside the declared lifetime"
       "a buffer's bytes are used when they are not the buffer's: before it exists, after it is freed or given away, or outside its graph"
    E4 "read with no definition"
       "a node reads bytes that nothing in the graph has written, and the buffer is not declared to carry content from replay to replay"
    E5 "persistent bytes shared with a transient"
       "a buffer that lives across replays shares bytes with one that a graph overwrites at each replay"
    E6 "live output overwritten"
       "an output's bytes are used by another buffer before the caller has released it"
    E7 "graphs that may replay at once share bytes"
       "replays of two graphs may overlap in time and use the same bytes, one of them writing"
    E8 "programmatic edge used as a full one"
       "a programmatic edge orders only what the second kernel does after its wait, and only if it waits"
    E9 "external user not ordered"
       "someone outside the graph uses the same bytes and the declared discipline does not keep the two apart"
    E10 "work outside the capture"
       "a stream was never joined, or a wait named something that was not captured and left no edge"
    E11 "the captured graph differs from the recording"
       "a node, an edge or a pointer of the driver's graph is not what was recorded"
    E12 "stale or unknown pointer"
       "a captured node points outside every buffer, or to bytes that a buffer had before it moved"
    E13 "an instrument changed the graph"
       "with the instrument on, an address or the order of original nodes is not what it was with it off"
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not one of `E1` to `E13`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no finding code: they are E1 to E13")]
pub struct CodeError(String);

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let found = Self::ALL.iter().find(|code| code.name() == text);
        found.copied().ok_or_else(|| CodeError(text.to_string()))
    }
}
