//! PostgreSQL.

use std::hint::black_box;
use std::str::FromStr;

use sqlstreams::sqlx::postgres::{PgConnectOptions, PgPool};
use sqlstreams::sqlx::{self, AssertSqlSafe, ConnectOptions, Connection, Row, Transaction};
use sqlstreams::{Client, Postgres};
use sqlstreams_runtime::identity::StreamId;

use super::{READ, Read, Setting, Yardstick};
use crate::payload::Order;
use crate::run::Result;

const DATABASE: &str = "sqlstreams_bench";

/// A database of the benchmark's own on a server.
pub struct Server {
    server: PgConnectOptions,
    url: String,
}

impl Server {
    /// Makes the database on the server at `url`; one that an interrupted run left behind is replaced.
    pub async fn prepare(url: &str) -> Result<Self> {
        let server = PgConnectOptions::from_str(url)?;
        let url = server.clone().database(DATABASE).to_url_lossy().to_string();
        let place = Self { server, url };
        place.remove().await?;
        place.on_server(&format!("create database {DATABASE} template template0")).await?;
        Ok(place)
    }

    /// Drops the database.
    pub async fn remove(&self) -> Result<()> {
        self.on_server(&format!("drop database if exists {DATABASE} with (force)")).await
    }

    async fn on_server(&self, statement: &str) -> Result<()> {
        let mut connection = self.server.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }
}

/// The columns of a stream's log.
const EMPTY: &str = "
    drop schema if exists sqlstreams cascade;
    drop table if exists bare;
    create table bare (
        id bigint generated always as identity primary key,
        created_at timestamptz not null default now(),
        schema_version integer not null,
        codec smallint not null,
        routing_key text,
        message_key text,
        headers json,
        payload json,
        payload_bytes bytea
    );
";

impl Yardstick for Postgres {
    const PARTITIONS: &'static [i64] = &[1, 100, 500];
    type Place = Server;

    async fn open(place: &Server) -> Result<Setting<Self>> {
        let client = Client::<Self>::connect(&place.url).await?;
        let pool = client.pool().clone();
        sqlx::raw_sql(EMPTY).execute(&pool).await?;
        client.migrate().await?;
        // So that no run pays for what another wrote. A role that may not do it measures without.
        let _ = sqlx::raw_sql("checkpoint").execute(&pool).await;
        Ok(Setting { url: place.url.clone(), client, writer: pool.clone(), reader: pool, _folder: None })
    }

    async fn insert(pool: &PgPool, payloads: Vec<String>) -> Result<i64> {
        let rows = sqlx::query(
            "insert into bare (schema_version, codec, payload)
            select 1, 0, payload::json from unnest($1::text[]) payload
            returning id",
        )
        .bind(payloads)
        .fetch_all(pool)
        .await?;
        let mut highest = 0;
        for row in &rows {
            highest = highest.max(row.try_get(0)?);
        }
        Ok(highest)
    }

    async fn read(pool: &PgPool, low: i64, high: i64, mut handle: impl FnMut(Order) + Send) -> Result<Read> {
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
            handle(black_box(serde_json::from_slice(row.try_get_raw(7)?.as_bytes()?)?));
        }
        Ok(Read { rows: rows.len() as u64, last })
    }

    async fn wal(pool: &PgPool) -> Result<Option<i64>> {
        let position = sqlx::query_scalar("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint");
        Ok(Some(position.fetch_one(pool).await?))
    }

    async fn hold(pool: &PgPool) -> Result<Transaction<'static, Self>> {
        let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
        sqlx::query("select 1").execute(&mut *tx).await?;
        Ok(tx)
    }

    async fn partition(pool: &PgPool, stream: StreamId, used: i64) -> Result<()> {
        let add = sqlx::query("select sqlstreams.partition_add($1, number) from generate_series(0, $2) number");
        add.bind(stream.0).bind(used + 1).execute(pool).await?;
        let log = format!("sqlstreams.message_log_{stream}");
        let size = format!("(select partition_size from sqlstreams.stream_config where id = {stream})");
        let fill = format!(
            "insert into {log} (id, schema_version, codec, payload) overriding system value
            select number * {size} + 1, 1, 0, '{{}}' from generate_series(0, {used} - 1) number;
            select setval('{log}_id_seq', ({used} - 1) * {size} + 1);
            analyze {log};"
        );
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(pool).await?;
        Ok(())
    }

    async fn describe(place: &Server) -> Result<Vec<String>> {
        const SETTINGS: [&str; 9] = [
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "data_checksums",
            "wal_compression",
            "shared_buffers",
            "max_wal_size",
            "checkpoint_timeout",
            "autovacuum",
        ];
        let mut connection = place.server.connect().await?;
        let version = sqlx::query_scalar("select version()").fetch_one(&mut connection).await?;
        let mut settings = Vec::new();
        for name in SETTINGS {
            let current = sqlx::query_scalar("select current_setting($1)").bind(name);
            let value: String = current.fetch_one(&mut connection).await?;
            settings.push(format!("{name} {value}"));
        }
        connection.close().await?;
        Ok(vec![version, settings.join(", ")])
    }
}
