//! What the program says while it works: on standard error, and moving only on a terminal.

use std::sync::Mutex;
use std::time::Duration;

use anstream::eprintln;
use indicatif::{ProgressBar, ProgressStyle};
use lathe_runtime::toolchain::{Event, Toolchain};

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// The toolchain of the project; whatever it installs is announced and shown as work in progress.
pub fn toolchain(offline: bool) -> Toolchain {
    let spinner = Mutex::new(None::<ProgressBar>);
    Toolchain::new(offline, move |event| {
        let mut spinner = spinner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        eprintln!("\x1b[1;32mlathe\x1b[0m {event}");
        match event {
            Event::Installing { .. } => {
                let style = ProgressStyle::with_template("{spinner:.green} pip is at work, {elapsed}");
                let turning = ProgressBar::new_spinner().with_style(style.expect("a constant template"));
                turning.enable_steady_tick(TICK);
                *spinner = Some(turning);
            }
            Event::Installed { .. } => {
                if let Some(turning) = spinner.take() {
                    turning.finish_and_clear();
                }
            }
        }
    })
}

/// A bar for `length` steps of work.
pub fn bar(length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner:.green} {bar:24.green} {pos}/{len} {msg}");
    let bar = ProgressBar::new(length as u64).with_style(style.expect("a constant template"));
    bar.enable_steady_tick(TICK);
    bar
}

/// The same for steps that take seconds, with the time that is left.
pub fn bar_with_time_left(length: usize) -> ProgressBar {
    let template = "{spinner:.green} {bar:24.green} {pos}/{len}, {eta} left, {msg}";
    bar(length).with_style(ProgressStyle::with_template(template).expect("a constant template"))
}
