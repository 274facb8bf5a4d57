//! The #[kernel] attribute of Lathe.
