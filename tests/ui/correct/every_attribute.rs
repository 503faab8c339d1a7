use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Delivery, Group, Handler, Outcome, RouteSegment, Stream};

mod v1 {
    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema, Stream)]
    #[stream(name = "orders.placed")]
    pub struct OrderPlaced {
        pub order_id: u64,
    }
}

#[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
#[serde(rename_all = "lowercase")]
enum Region {
    Eu,
    Us,
}

#[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
struct Kind(String);

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders.placed", version = 2)]
#[stream(route = "orders.{region}.all.{kind}", key = "order_id")]
#[stream(idempotency_key = "note_id")]
#[stream(from = v1::OrderPlaced, crate = "::sqlstreams")]
struct OrderPlaced {
    order_id: u64,
    region: Region,
    kind: Kind,
    note: Option<String>,
    note_id: String,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced, bind = ["orders.eu.**", "**.urgent"], keys = "ordered")]
#[group(retries = 0, retry_delay = "250ms", retry_max_delay = "1h30m", timeout = "2m", start = "head")]
#[group(delivery_log = "failures")]
struct EmailReceipts {
    sender: String,
}

impl Handler for EmailReceipts {
    async fn handle(&self, _order: OrderPlaced, _delivery: Delivery) -> Result<Outcome, BoxError> {
        Ok(Outcome::Done)
    }
}

#[derive(Group)]
#[group(name = "audit", stream = v1::OrderPlaced)]
struct Audit;

fn main() {
    let mut order = OrderPlaced { order_id: 7, region: Region::Eu, kind: Kind("urgent".to_owned()), note: None, note_id: "n1".to_owned() };
    assert_eq!(OrderPlaced::NAME, "orders.placed");
    assert_eq!((v1::OrderPlaced::VERSION, OrderPlaced::VERSION), (1, 2));
    assert_eq!((v1::OrderPlaced::KEY, OrderPlaced::KEY), (None, Some("order_id")));
    assert_eq!(OrderPlaced::ROUTE.template, "orders.{region}.all.{kind}");
    assert!(OrderPlaced::ROUTE.accepts("orders.us.all.x"));
    assert_eq!(order.routing_key().unwrap().as_deref(), Some("orders.eu.all.urgent"));
    assert_eq!(order.message_key().as_deref(), Some("7"));
    assert_eq!((v1::OrderPlaced::IDEMPOTENCY_KEY, OrderPlaced::IDEMPOTENCY_KEY), (None, Some("note_id")));
    assert_eq!(order.idempotency_key().as_deref(), Some("n1"));
    assert_eq!(v1::OrderPlaced { order_id: 7 }.idempotency_key(), None);

    order.region = Region::Us;
    order.kind = Kind("very urgent".to_owned());
    let problem = order.routing_key().unwrap_err().to_string();
    assert!(problem.contains("`kind`") && problem.contains("orders.placed"), "{problem}");
    assert!(!problem.contains("very urgent"), "{problem}");

    let config = EmailReceipts::CONFIG;
    assert_eq!(EmailReceipts::NAME, "email-receipts");
    assert_eq!(config.bindings, ["orders.eu.**", "**.urgent"]);
    assert_eq!(config.keys.as_str(), "ordered");
    assert_eq!(config.retry.retries, 0);
    assert_eq!(config.retry.first_delay.as_millis(), 250);
    assert_eq!(config.retry.max_delay.as_secs(), 5_400);
    assert_eq!(config.timeout.as_secs(), 120);
    assert_eq!(config.start, sqlstreams::Start::Head);
    assert_eq!(config.delivery_log.as_str(), "failures");
    assert_eq!((Audit::CONFIG.retry.retries, Audit::CONFIG.delivery_log.as_str()), (5, "off"));
    let _ = EmailReceipts { sender: String::new() };
}
