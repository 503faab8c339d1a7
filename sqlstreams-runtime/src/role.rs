//! What a database role may do with an installation.

/// A kind of process, by the rights that its database role needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoleKind {
    /// Joins registered streams and appends messages; reads no payload, and consumes nothing.
    Produce,
    /// Joins registered streams, registers groups, reads and settles messages; appends nothing.
    Consume,
    /// Both, and registers streams and payload versions. Migrating stays with the installation's owner.
    Admin,
}

impl RoleKind {
    /// `produce`, `consume` or `admin`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Admin => "admin",
        }
    }
}
