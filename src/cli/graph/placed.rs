//! A graph file with an address for every buffer: those it gives, a plan's, or a framework allocator's.

use std::path::{Path, PathBuf};

use lathe_graph::allocator::{Allocation, allocate, as_recorded};
use lathe_graph::file::GraphFile;
use lathe_graph::model::{Placement, Pool};
use lathe_graph::order::Order;
use lathe_graph::plan::{Options, Planner};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A graph file, and where its buffers are to lie
#[derive(clap::Args)]
pub struct Input {
    /// Graph file (JSON)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where buffers lie: as the file says, as Lathe plans them, or as a stream-keyed caching allocator would place them
    /// in record order; by default as the file says, and planned if it says nothing
    #[arg(long, value_name = "WHO")]
    placed_by: Option<Who>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Who {
    File,
    Lathe,
    Framework,
}

impl Input {
    /// Reads and places.
    pub fn read(&self) -> Result<(GraphFile, Placement), Failure> {
        let mut file = GraphFile::read(&self.file)?;
        let given = if file.placement.is_empty() { Who::Lathe } else { Who::File };
        let placement = match self.placed_by.unwrap_or(given) {
            Who::File => file.placement.clone(),
            Who::Lathe => {
                forget_addresses(&mut file.pool);
                let order = Order::of(&file.pool)?;
                Planner::new(&file.pool, &order).plan(&Options::default()).placement
            }
            Who::Framework => {
                forget_addresses(&mut file.pool);
                framework(&file.pool)?.placement
            }
        };
        Ok((file, placement))
    }
}

/// Lets the planner choose every address.
pub fn forget_addresses(pool: &mut Pool) {
    let ids: Vec<_> = pool.buffer_ids().collect();
    ids.into_iter().for_each(|id| pool.buffer_mut(id).address = None);
}

/// What a caching allocator does with the buffers in record order.
pub fn framework(pool: &Pool) -> Result<Allocation, Failure> {
    Ok(allocate(pool, &as_recorded(pool), 0)?)
}

/// The name of a file, for titles.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
