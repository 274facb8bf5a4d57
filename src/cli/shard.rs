//! A part of a sweep, for one machine of many.

use std::str::FromStr;

/// The `index`-th of `count` parts, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub index: usize,
    pub count: usize,
}

/// Text that names no shard.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no shard, accepted: INDEX/COUNT with 1 <= INDEX <= COUNT, e.g. 3/8")]
pub struct NoShard(String);

impl FromStr for Shard {
    type Err = NoShard;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parsed {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Shard { index, count }),
            _ => Err(NoShard(text.to_owned())),
        }
    }
}

impl Shard {
    /// Everything.
    pub const WHOLE: Shard = Shard { index: 1, count: 1 };

    /// The items of this part: every `count`-th, so that neighbours, which cost about the same, go to different parts.
    pub fn of<T>(self, items: Vec<T>) -> Vec<T> {
        items.into_iter().skip(self.index - 1).step_by(self.count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_of_a_list_are_the_list() {
        for (count, length) in [(1, 5), (3, 10), (8, 3)] {
            let items: Vec<usize> = (0..length).collect();
            let mut all: Vec<usize> = (1..=count).flat_map(|index| Shard { index, count }.of(items.clone())).collect();
            all.sort_unstable();
            assert_eq!(all, items);
        }
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        assert_eq!("3/8".parse::<Shard>().unwrap(), Shard { index: 3, count: 8 });
        for text in ["0/8", "9/8", "3", "3/", "a/b", "3/0", ""] {
            let error = text.parse::<Shard>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is no shard")), "{error}");
        }
    }
}
