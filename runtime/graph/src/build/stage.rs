//! What has been proved of a recording, as types.

use super::handle::{Bytes, Lasting};
use crate::check::check;
use crate::finding::Report;
use crate::model::{ModelError, Placement, Pool};
use crate::order::Order;
use crate::plan::{Options, Plan, Planner};
use crate::render::{Sources, Style, render};

/// A recording without findings about order and lifetimes. It can be planned.
#[derive(Debug)]
pub struct Checked {
    pool: Pool,
    order: Order,
}

/// A checked recording whose buffers have addresses, also checked: what shares bytes is ordered. This is what
/// a runtime captures and replays.
#[derive(Debug)]
pub struct Planned {
    pool: Pool,
    order: Order,
    placement: Placement,
    plan: Option<Plan>,
}

/// A recording that was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Its tables make no sense.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The checker found something.
    #[error("{}", render(report, pool, placement, &mut Sources::from_disk(), Style { colour: false }))]
    Findings {
        /// What was recorded.
        pool: Box<Pool>,
        /// Where buffers lay when it was checked.
        placement: Placement,
        /// What was found.
        report: Box<Report>,
    },
}

impl Checked {
    pub(super) fn new(pool: Pool) -> Result<Self, Refused> {
        let nowhere = Placement::empty(&pool);
        let (pool, _, order) = verify(pool, nowhere)?;
        Ok(Self { pool, order })
    }

    /// What was recorded.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its happens-before relation.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Gives every buffer its bytes, and checks the result like any other placement.
    ///
    /// # Errors
    /// [`Refused`] if buffers with given addresses are in the way.
    pub fn plan(self, options: &Options) -> Result<Planned, Refused> {
        let plan = Planner::new(&self.pool, &self.order).plan(options);
        let mut placement = plan.placement.clone();
        for (buffer, address) in Placement::given(&self.pool).iter() {
            placement.set(buffer, address);
        }
        Ok(Planned { plan: Some(plan), ..self.place(placement)? })
    }

    /// Takes a placement from elsewhere, a framework's allocator say, if it passes the check.
    ///
    /// # Errors
    /// [`Refused`] with what the placement breaks.
    pub fn place(self, placement: Placement) -> Result<Planned, Refused> {
        let (pool, placement, order) = verify(self.pool, placement)?;
        Ok(Planned { pool, order, placement, plan: None })
    }
}

fn verify(pool: Pool, placement: Placement) -> Result<(Pool, Placement, Order), Refused> {
    let report = check(&pool, Some(&placement))?;
    if report.is_clean() {
        Ok((pool, placement, report.order))
    } else {
        Err(Refused::Findings { pool: Box::new(pool), placement, report: Box::new(report) })
    }
}

impl Planned {
    /// What was recorded.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its happens-before relation.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Where every buffer lies.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The plan, with its size, its bound and its hash; none for a placement from elsewhere.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The address of a buffer; none if nothing uses it.
    pub fn address<'s>(&self, buffer: &impl Bytes<'s>) -> Option<u64> {
        self.placement.address(buffer.id())
    }

    /// The lasting buffer of that name.
    pub fn find(&self, name: &str) -> Option<Lasting> {
        let id = self.pool.find_buffer(name)?;
        let transient = matches!(self.pool.buffer(id).lifetime, crate::model::Lifetime::Transient { .. });
        (!transient).then_some(Lasting(id))
    }
}
