// What the wire says, as docs/wire.md has it.
export interface Usage {
  memory_bytes: number | null;
  memory_limit_bytes: number | null;
  cpu_percent: number | null;
  pids: number | null;
}

export interface Session {
  session_id: string;
  runtime: string;
  tenant: string | null;
  alive: boolean;
  state: 'running' | 'hibernated';
  created_at: number;
  last_activity: number;
  idle_seconds: number;
  usage: Usage | null;
  // With detail=true.
  frozen?: boolean;
  over_quota?: boolean;
  running_commands?: number;
  running?: string | null;
  expires_at?: number | null;
}

export interface SessionList {
  sessions: Session[];
  limit: number | null;
  open_limit: number | null;
  tenant_limit: number | null;
}

export interface Tenant {
  tenant: string;
  open_sessions: number;
  resident_sessions: number;
  running_commands: number;
  disk_bytes: number | null;
  max_open_sessions: number | null;
  max_resident_sessions: number | null;
  max_running_commands: number | null;
  max_disk_bytes: number | null;
}

export interface FeedEvent {
  seq: number;
  at: number;
  op: string;
  session: string | null;
  tenant: string | null;
  detail: string;
}

export interface Workspace {
  id: string;
  tenant: string | null;
  runtime: string | null;
  open: boolean;
  pinned: boolean;
  over_quota: boolean;
  created_at: number | null;
  last_use: number | null;
  expires_at: number | null;
  size_bytes: number | null;
  file_count: number | null;
  measured_at: number | null;
}

export interface Limits {
  mem_limit: string | null;
  memswap_limit: string | null;
  cpus: number | null;
  cpu_shares: number | null;
  pids_limit: number | null;
  network_mode: string | null;
  oci_runtime: string | null;
}

export interface Runtime extends Limits {
  alias: string;
  image: string;
  description: string;
}

export interface Policy extends Limits {
  runtimes: Runtime[];
  default_runtime: string;
  max_sessions: number | null;
  max_open_sessions: number | null;
  max_sessions_per_tenant: number | null;
  evict_idle_after: number | null;
  work_dir: string;
  idle_timeout: number;
  execute_timeout: number;
  max_read_bytes: number;
  persist_containers: boolean;
  sandbox_uid: number | null;
  workspace_ttl: number | null;
  container_ttl: number | null;
  tmpfs_size: string | null;
  prewarm: boolean;
}

export type Isolation = Record<string, Record<string, { state: 'enforced' | 'accounted' | 'not enforced'; detail: string }>>;

export interface Entry {
  path: string;
  path_encoded: string;
  kind: 'file' | 'directory' | 'link' | 'other';
  mode: number | string;
  size: number | null;
  modified_at: number | null;
}

export interface Found {
  entries: Entry[];
  truncated: boolean;
  truncated_by: string | null;
  unreadable: number;
}

export interface Match {
  path: string;
  path_encoded: string;
  line: number;
  column: number;
  text: string;
  cut: boolean;
}

export interface Searched {
  matches: Match[];
  truncated: boolean;
  truncated_by: string | null;
  files: number;
  binary_files: number;
}

export interface Run {
  run_id: string;
  state: 'starting' | 'running' | 'ended';
  command: string;
  tty: boolean;
  started_at: number;
  ended_at: number | null;
  exit_code: number | null;
  signal: number | string | null;
  timed_out: boolean;
  stopped: boolean;
  oom: boolean;
  lost: boolean;
  output_limited: boolean;
  cause: string | null;
  cpu_ms: number | null;
  peak_bytes: number | null;
  stdout_bytes: number | null;
  stderr_bytes: number | null;
}

export interface Snapshot {
  snapshot_id: string;
  name: string | null;
  created_at: number;
}

export interface Activity {
  seq: number;
  at: number;
  op: string;
  target: string;
  ok: boolean;
  detail: string;
  duration_ms: number;
}
