//! No group passes an id that a running transaction can still fill, and no transaction stalls what is not its own.
