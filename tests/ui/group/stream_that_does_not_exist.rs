use sqlstreams::Group;

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlacd, bind = "orders.**", keys = "ordered")]
struct EmailReceipts;

fn main() {}
