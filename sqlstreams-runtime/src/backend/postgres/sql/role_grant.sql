-- sqlstreams: role.grant
-- $1 role, $2 kind (produce, consume, admin).
select "{schema}".grant_role($1, $2)
