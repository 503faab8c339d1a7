//! SQLite.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::LazyLock;

use sqlstreams::sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlstreams::sqlx::{self, AssertSqlSafe, Row, SqlSafeStr, SqlStr, Transaction};
use sqlstreams::{Client, Sqlite};
use sqlstreams_runtime::identity::StreamId;

use super::{READ, Read, Setting, Yardstick};
use crate::payload::Order;
use crate::produce::BATCH;
use crate::run::Result;

/// A folder in which each run has a folder of its own.
pub struct Folder(pub PathBuf);

/// The columns of a stream's log.
const TABLE: &str = "
    create table bare (
        id integer primary key autoincrement,
        created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
        schema_version integer not null,
        codec integer not null,
        routing_key text,
        message_key text,
        headers text,
        payload text,
        payload_bytes blob
    ) strict
";

impl Yardstick for Sqlite {
    const PARTITIONS: &'static [i64] = &[];
    type Place = Folder;

    async fn open(place: &Folder) -> Result<Setting<Self>> {
        let folder = tempfile::Builder::new().prefix("sqlstreams-bench-").tempdir_in(&place.0)?;
        let url = url(&folder.path().join("streams.db"));
        let client = Client::<Self>::connect(&url).await?;
        client.migrate().await?;
        let options = SqliteConnectOptions::from_str(&self::url(&folder.path().join("bare.db")))?
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            // The default of 50 makes a read of 1,000 rows wait for its thread twenty times.
            .row_buffer_size(READ as usize);
        // One writer: more would only fight for the file's lock.
        let pool = SqlitePoolOptions::new().max_connections(1).test_before_acquire(false);
        let writer = pool.clone().connect_with(options.clone()).await?;
        sqlx::raw_sql(TABLE).execute(&writer).await?;
        let reader = pool.connect_with(options).await?;
        Ok(Setting { url, client, writer, reader, _folder: Some(folder) })
    }

    async fn insert(pool: &SqlitePool, payloads: Vec<String>) -> Result<i64> {
        static OF_A_BATCH: LazyLock<SqlStr> = LazyLock::new(|| insert_text(BATCH as usize));
        let text = if payloads.len() == BATCH as usize { OF_A_BATCH.clone() } else { insert_text(payloads.len()) };
        let mut insert = sqlx::query(text);
        for payload in payloads {
            insert = insert.bind(payload);
        }
        Ok(insert.execute(pool).await?.last_insert_rowid())
    }

    async fn read(pool: &SqlitePool, low: i64, high: i64, mut handle: impl FnMut(Order) + Send) -> Result<Read> {
        let rows = sqlx::query(
            "select id, created_at, schema_version, codec, routing_key, message_key, headers, payload, payload_bytes
            from bare where id > $1 and id <= $2 order by id limit $3",
        )
        .bind(low)
        .bind(high)
        .bind(READ)
        .fetch_all(pool)
        .await?;
        let mut last = low;
        for row in &rows {
            last = row.try_get(0)?;
            handle(black_box(serde_json::from_str(row.try_get(7)?)?));
        }
        Ok(Read { rows: rows.len() as u64, last })
    }

    async fn wal(_pool: &SqlitePool) -> Result<Option<i64>> {
        Ok(None)
    }

    async fn hold(pool: &SqlitePool) -> Result<Transaction<'static, Self>> {
        let mut tx = pool.begin().await?;
        // The snapshot begins with the first look at a table.
        sqlx::query("select count(*) from sqlite_schema").execute(&mut *tx).await?;
        Ok(tx)
    }

    async fn partition(_pool: &SqlitePool, _stream: StreamId, _used: i64) -> Result<()> {
        Err("SQLite's log has no partitions".into())
    }

    async fn describe(place: &Folder) -> Result<Vec<String>> {
        let folder = tempfile::tempdir_in(&place.0)?;
        let pool = SqlitePool::connect(&url(&folder.path().join("version.db"))).await?;
        let version: String = sqlx::query_scalar("select sqlite_version()").fetch_one(&pool).await?;
        pool.close().await;
        Ok(vec![format!("SQLite {version}, journal_mode wal; bare inserts and produces with synchronous full")])
    }
}

fn url(file: &Path) -> String {
    format!("sqlite://{}?mode=rwc", file.display())
}

fn insert_text(rows: usize) -> SqlStr {
    let values = vec!["(1, 0, ?)"; rows].join(", ");
    AssertSqlSafe(format!("insert into bare (schema_version, codec, payload) values {values}")).into_sql_str()
}
