//! A PTX emulator with race checks.
