//! Contract tests of the port's methods on `parked`.
