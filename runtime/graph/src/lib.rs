//! Graphs with explicit buffer lifetimes: checker, planner, explorer, instruments.
