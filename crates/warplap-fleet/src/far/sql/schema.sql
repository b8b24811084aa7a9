-- The tables of a fleet, PostgreSQL 14 or later. Run as whoever owns the database; running it again changes nothing.
create schema if not exists warplap;

create table if not exists warplap.about (one boolean primary key default true check (one), schema int not null, id text not null);
insert into warplap.about (schema, id) values (1, gen_random_uuid()::text) on conflict do nothing;

-- Who may publish: a public key, known by its hash, and the login that brought it. Nobody counts before a keeper lets
-- them in.
create table if not exists warplap.origin (
  id text primary key check (octet_length(id) = 16), key text not null check (octet_length(key) <= 200),
  node text not null default '' check (octet_length(node) <= 200), role name not null default current_user,
  since timestamptz not null default now(), admitted timestamptz, revoked timestamptz);

create table if not exists warplap.device (
  id int generated always as identity primary key, slug text unique not null check (octet_length(slug) <= 64),
  hard text not null check (octet_length(hard) <= 65536));

-- An edition is a measurement by somebody: two of them never conflict. `answer` is what programs need, `body` every
-- trial. Both are kept as the bytes that were signed.
create table if not exists warplap.edition (
  device int not null references warplap.device, soft text not null check (octet_length(soft) = 16),
  hash text not null check (octet_length(hash) = 32), origin text not null references warplap.origin,
  op text not null check (octet_length(op) <= 64), tuned_at bigint not null, grade smallint not null,
  answer text not null check (octet_length(answer) <= 65536),
  digest text not null check (octet_length(digest) = 64),
  body bytea not null check (octet_length(body) <= 16777216),
  signature text not null check (octet_length(signature) = 128),
  xid xid8 not null default pg_current_xact_id(),
  counts boolean not null default false,
  primary key (device, soft, hash, origin));
alter table warplap.edition alter column body set storage external;
create index if not exists edition_xid on warplap.edition (device, xid);

create table if not exists warplap.want (
  device int not null references warplap.device, hash text not null check (octet_length(hash) = 32),
  op text not null, key text not null check (octet_length(key) <= 65536),
  problem text not null check (octet_length(problem) <= 65536),
  asked bigint not null default 1, last timestamptz not null default now(),
  failed int not null default 0, why text check (octet_length(why) <= 4096), nodes text[] not null default '{}',
  primary key (device, hash));

create table if not exists warplap.artifact (
  digest text not null check (octet_length(digest) = 64), origin text not null references warplap.origin,
  body bytea not null check (octet_length(body) <= 16777216),
  signature text not null check (octet_length(signature) = 128), primary key (digest, origin));

create table if not exists warplap.card (
  id text primary key check (octet_length(id) <= 200), device int not null references warplap.device,
  origin text not null references warplap.origin, node text not null check (octet_length(node) <= 200),
  ceilings text not null check (octet_length(ceilings) <= 65536), seen timestamptz not null default now());

-- Whether what is written under an origin is the writer's own, who is let in.
create or replace function warplap.is_mine(who text) returns boolean language sql stable security definer
  set search_path = pg_catalog as
$$ select exists (select 1 from warplap.origin o
                  where o.id = who and o.role = session_user and o.admitted is not null and o.revoked is null) $$;

-- A row's transaction is what followers go by, nobody measured tomorrow, and what somebody measured counts while they are
-- in. That is kept with each edition, so that whoever asks for a key reads one table.
create or replace function warplap.stamp() returns trigger language plpgsql set search_path = pg_catalog as
$$ begin
  if new.tuned_at > extract(epoch from now()) + 600 then
    raise exception 'an edition from the future' using errcode = 'check_violation';
  end if;
  new.xid := pg_current_xact_id();
  new.counts := (select o.admitted is not null and o.revoked is null from warplap.origin o where o.id = new.origin);
  return new;
end $$;
create or replace trigger stamp before insert or update on warplap.edition for each row execute function warplap.stamp();

create or replace function warplap.recount() returns trigger language plpgsql security definer set search_path = pg_catalog as
$$ begin
  update warplap.edition e set counts = e.counts where e.origin = new.id;
  return null;
end $$;
create or replace trigger recount after update of admitted, revoked on warplap.origin for each row
  when ((old.admitted is not null and old.revoked is null) <> (new.admitted is not null and new.revoked is null))
  execute function warplap.recount();

do $$
declare name text;
begin
  foreach name in array array['warplap_reader', 'warplap_tuner', 'warplap_keeper'] loop
    if not exists (select 1 from pg_roles where rolname = name) then
      execute format('create role %I nologin', name);
    end if;
  end loop;
end $$;

revoke all on all tables in schema warplap from public;
grant usage on schema warplap to warplap_reader, warplap_tuner, warplap_keeper;
grant select on all tables in schema warplap to warplap_reader, warplap_tuner, warplap_keeper;
grant insert (id, key, node) on warplap.origin to warplap_tuner;
grant insert (slug, hard) on warplap.device to warplap_tuner;
grant insert (device, soft, hash, origin, op, tuned_at, grade, answer, digest, body, signature) on warplap.edition
  to warplap_tuner;
grant update (op, tuned_at, grade, answer, digest, body, signature) on warplap.edition to warplap_tuner;
grant insert (device, hash, op, key, problem), update (asked, last, failed, why, nodes) on warplap.want to warplap_tuner;
grant insert (digest, origin, body, signature) on warplap.artifact to warplap_tuner;
grant insert (id, device, origin, node, ceilings), update (node, ceilings, seen) on warplap.card to warplap_tuner;
grant update (admitted, revoked) on warplap.origin to warplap_keeper;
grant delete on warplap.edition, warplap.want, warplap.artifact, warplap.card to warplap_keeper;

alter table warplap.edition enable row level security;
alter table warplap.artifact enable row level security;
alter table warplap.card enable row level security;
do $$
declare one text;
begin
  foreach one in array array['edition', 'artifact', 'card'] loop
    execute format('drop policy if exists reads on warplap.%I', one);
    execute format('drop policy if exists adds on warplap.%I', one);
    execute format('drop policy if exists changes on warplap.%I', one);
    execute format('drop policy if exists prunes on warplap.%I', one);
    execute format('create policy reads on warplap.%I for select using (true)', one);
    execute format('create policy adds on warplap.%I for insert to warplap_tuner with check (warplap.is_mine(origin))', one);
    execute format('create policy changes on warplap.%I for update to warplap_tuner
                    using (warplap.is_mine(origin)) with check (warplap.is_mine(origin))', one);
    execute format('create policy prunes on warplap.%I for delete to warplap_keeper using (true)', one);
  end loop;
end $$;
