from catalog import program


@program("sqlite", needs={"sqlite3": "sqlite3"}, light=True, proves=["sqlite3 --version"], watches=["sqlite3"])
def sqlite(test):
    """sqlite3: large transactions, indexes, updates, full text, recursive queries, vacuum, integrity_check"""
    rows = 40_000 if test.quick else 400_000
    result = test.same_as_plain(["sqlite3", "-batch", "-bail", ":memory:"], stdin=script(rows, "memory"))
    test.expect("integrity ok" in result.stdout, "integrity_check of the database in memory did not say ok")
    on_disk = test.run(["sqlite3", "-batch", "-bail", "disk.db"], stdin=script(rows, "wal"))
    test.expect(on_disk.stdout.replace("wal\n", "memory\n", 1) == result.stdout,
                "the database on disk gives other results than the one in memory")
    dump = test.run(["bash", "-o", "pipefail", "-c",
                     "sqlite3 disk.db .dump | sqlite3 copy.db && sqlite3 copy.db 'pragma integrity_check'"])
    test.expect(dump.stdout == "ok\n", "the copy made from a dump is not sound")
    test.note(f"{rows} rows")


def script(rows, journal):
    """SQL whose results depend on each row; the numbers are derived from the row, not from chance."""
    return f"""
pragma journal_mode={journal};
pragma cache_size=-40000;
create table item(id integer primary key, name text, price real, body blob);
begin;
with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
  insert into item select i, printf('item %d %s', i, hex(i * 2654435761 % 4294967296)), i * 7919 % 10007 / 100.0,
                          zeroblob(i * 31 % 300) from n;
commit;
create index item_name on item(name);
create index item_price on item(price, id);
select count(*), sum(price), sum(length(body)) from item;
begin;
update item set body = cast(printf('%0*d', id % 2000, id) as blob) where id % 7 = 0;
delete from item where id % 11 = 0;
savepoint half;
update item set name = name || name;
rollback to half;
commit;
select count(*), sum(length(body)), max(name) from item where price between 10 and 60;
select group_concat(name, '') is not null, length(group_concat(name, '')) from item;
create virtual table words using fts5(text);
insert into words select name from item where id % 3 = 0;
select count(*) from words where words match 'item';
select sum(x.id) from item x join item y on y.id = x.id * 7919 % {rows} + 1 where x.price > y.price;
with ranked as (select id, row_number() over (partition by cast(price as integer) order by name) as place from item)
  select sum(id) from ranked where place < 20;
select count(*), sum(length(j)) from (select json_group_array(json_object('id', id, 'name', name)) as j
  from item group by id % 97);
select avg(length(upper(substr(hex(randomblob(20000)), 1, id % 40000)))) > 0 from item where id < 2000;
vacuum;
select 'integrity ' || integrity_check from pragma_integrity_check;
"""
