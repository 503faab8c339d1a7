//! The messages: 1,000 bytes of JSON each, and the streams that they go through.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

/// The length of each payload as JSON.
pub const BYTES: usize = 1_000;

/// A payload that knows when it was made.
pub trait Payload: Stream {
    /// Puts the fields together.
    fn assemble(order_id: u64, customer: String, ts: u64, pad: String) -> Self;
    /// Microseconds since 1970.
    fn ts(&self) -> u64;
}

macro_rules! streams {
    ($($payload:ident, $group:ident, $name:literal;)*) => {$(
        #[derive(Serialize, Deserialize, JsonSchema, Stream)]
        #[stream(name = $name, version = 1)]
        pub struct $payload {
            order_id: u64,
            customer: String,
            ts: u64,
            pad: String,
        }

        impl Payload for $payload {
            fn assemble(order_id: u64, customer: String, ts: u64, pad: String) -> Self {
                Self { order_id, customer, ts, pad }
            }
            fn ts(&self) -> u64 {
                self.ts
            }
        }

        #[derive(Group)]
        #[group(name = "bench", stream = $payload)]
        pub struct $group;
    )*};
}

streams! {
    Order, Orders, "bench.orders";
    Invoice, Invoices, "bench.invoices";
    Shipment, Shipments, "bench.shipments";
    Refund, Refunds, "bench.refunds";
    Visit, Visits, "bench.visits";
}

/// The next payload, made now.
pub fn next<P: Payload>() -> P {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    const AROUND: usize = r#"{"order_id":,"customer":"","ts":,"pad":""}"#.len();
    let order_id = NUMBER.fetch_add(1, Ordering::Relaxed);
    let customer = format!("customer-{order_id}");
    let ts = now();
    let rest = BYTES - AROUND - digits(order_id) - customer.len() - digits(ts);
    let from = (order_id % 1_000) as usize;
    P::assemble(order_id, customer, ts, PAD[from..from + rest].to_owned())
}

/// As many payloads.
pub fn batch<P: Payload>(length: u64) -> Vec<P> {
    (0..length).map(|_| next()).collect()
}

/// The same as the bare statements send them.
pub fn encoded_batch(length: u64) -> Result<Vec<String>, serde_json::Error> {
    (0..length).map(|_| serde_json::to_string(&next::<Order>())).collect()
}

/// Microseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Letters and digits without a pattern, of which each payload takes a part.
static PAD: LazyLock<String> = LazyLock::new(|| {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut state = 1_u32;
    let letters = (0..2 * BYTES).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(LETTERS[(state >> 16) as usize % LETTERS.len()])
    });
    letters.collect()
});
