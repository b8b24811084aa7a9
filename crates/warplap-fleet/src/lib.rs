//! Many machines tune together. A store in PostgreSQL stands far behind the near one in a directory: the near one answers
//! everything, the far one is asked on a miss and told of what is new. Placement and retries belong to an engine that
//! people run already.

pub mod bundle_shelf;
