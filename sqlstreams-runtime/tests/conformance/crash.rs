//! What a crash of the database leaves: nothing acknowledged is lost, and nobody needs a restart.
