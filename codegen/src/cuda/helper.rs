/// A device function that an op's CUDA text calls: printed before the kernel when used.
#[derive(Debug)]
pub struct Helper {
    /// Its name, unique together with `text`.
    pub name: &'static str,
    /// Its definition.
    pub text: &'static str,
}

impl PartialEq for Helper {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
