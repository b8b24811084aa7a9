-- Whoever may only read must not be able to hold the locks that tuners take turns by. Needs the right to change
-- functions of the system, which the owner of a database need not have.
do $$
declare one record;
begin
  for one in select oid::regprocedure as name from pg_proc
             where pronamespace = 'pg_catalog'::regnamespace and proname like 'pg\_%advisory\_%' loop
    execute format('revoke execute on function %s from public', one.name);
    execute format('grant execute on function %s to warplap_tuner, warplap_keeper', one.name);
  end loop;
end $$;
