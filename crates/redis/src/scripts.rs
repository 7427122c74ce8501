//! Lua scripts, which the server executes atomically.

use redis::Script;

/// The Lua scripts. Each script's source is sent to a server only once; afterwards, only its hash
/// is sent.
pub(crate) struct Scripts {
    pub(crate) begin: Script,
    pub(crate) append: Script,
    pub(crate) remove: Script,
    pub(crate) beat: Script,
    pub(crate) announce: Script,
    pub(crate) announce_ended: Script,
    pub(crate) end: Script,
    pub(crate) announce_again: Script,
    pub(crate) open: Script,
    pub(crate) send: Script,
    pub(crate) answer: Script,
    pub(crate) close: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            begin: script(BEGIN, &["string", "stream", "string"]),
            append: script(APPEND, &["string", "stream", "string"]),
            remove: script(REMOVE, &["string", "stream", "string"]),
            beat: script(BEAT, &["string", "stream", "string", "string", "stream"]),
            announce: script(ANNOUNCE, &["hash", "hash"]),
            announce_ended: script(ANNOUNCE_ENDED, &["hash"]),
            end: script(END, &["hash", "hash"]),
            announce_again: script(ANNOUNCE_AGAIN, &["hash", "hash"]),
            open: script(OPEN, &["string", "stream"]),
            send: script(SEND, &["string", "stream"]),
            answer: script(ANSWER, &["stream", "string"]),
            close: script(CLOSE, &["string", "stream"]),
        }
    }
}

/// Creates a script. If another program has changed the type of one of the keys, the script deletes
/// the key, as if the server had lost it, and runs again. `types` are the types of the keys.
fn script(body: &str, types: &[&str]) -> Script {
    let types = types.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    Script::new(&format!(
        "local function run()\n{body}\nend
local ok, result = pcall(run)
if ok then return result end
local text = type(result) == 'table' and result.err or tostring(result)
if not string.find(text, 'WRONGTYPE') then
  return type(result) == 'table' and result or redis.error_reply(text)
end
for i, expected in ipairs({{{types}}}) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= expected then redis.call('DEL', KEYS[i]) end
end
return run()
"
    ))
}

/// Starts an attempt at a run. Even if only the owner key was lost, the new epoch is higher than
/// all epochs in the log.
///
/// Keys: owner, log, alive. Arguments: token, expiry, process, lease.
const BEGIN: &str = r"
local owner = redis.call('GET', KEYS[1])
local epoch = owner and tonumber(string.match(owner, '^(%d+):')) or 0
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if last then epoch = math.max(epoch, tonumber(string.match(last[1], '^(%d+)'))) end
if epoch >= 9007199254740991 then return redis.error_reply('ERR no epoch is left') end
local next = string.format('%.0f', epoch + 1)
redis.call('SET', KEYS[1], next .. ':' .. ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[3], ARGV[3], 'PX', ARGV[4])
return next
";

/// Appends entries, unless another attempt was started or the preceding entry is missing. If an id
/// in the log is equal to or higher than the id of a new entry, another program has written to the
/// log, so the log is deleted and written again.
///
/// Keys: owner, log, alive. Arguments: epoch and token, id before the first entry or '', expiry,
/// whether the entries end the log, id to trim before or '', then id and content of each entry.
const APPEND: &str = r"
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {'stale', owner} end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local last_id = last and last[1] or '0-0'
if ARGV[2] ~= '' and ARGV[2] ~= last_id then return {'lost', last_id} end
for i = 6, #ARGV, 2 do
  local added
  if i == 6 and ARGV[5] ~= '' then
    added = redis.pcall('XADD', KEYS[2], ARGV[i], 'entry', ARGV[i + 1], 'trim_before',
      ARGV[5])
  else
    added = redis.pcall('XADD', KEYS[2], ARGV[i], 'entry', ARGV[i + 1])
  end
  if type(added) == 'table' and added.err then
    if not string.find(added.err, 'equal or smaller') then return added end
    redis.call('DEL', KEYS[2])
    return {'lost', '0-0'}
  end
end
if ARGV[5] ~= '' then redis.call('XTRIM', KEYS[2], 'MINID', ARGV[5]) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
if ARGV[4] == '1' then redis.call('DEL', KEYS[3]) end
redis.call('PUBLISH', KEYS[2], ARGV[#ARGV - 1])
return {'ok', ''}
";

/// Removes a log. If the log contains no end entry, the script does not remove the log, but marks
/// the run as dropped, so that the run's readers end.
///
/// Keys: owner, log, alive. Arguments: epoch and token, whether the log has an end entry, id and
/// content of the marker, expiry.
const REMOVE: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[3])
if ARGV[2] == '1' then
  redis.call('DEL', KEYS[1], KEYS[2])
else
  redis.call('XADD', KEYS[2], ARGV[3], 'entry', ARGV[4])
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
  redis.call('PUBLISH', KEYS[2], ARGV[3])
end
return 1
";

/// Sends a heartbeat. Returns the id of the last log entry.
///
/// Keys: owner, log, alive, open, inbox. Arguments: epoch and token or '', process, lease, expiry,
/// token of the inbox or ''.
const BEAT: &str = r"
if ARGV[5] ~= '' then
  local open = redis.call('GET', KEYS[4])
  if not open or open == ARGV[5] then
    redis.call('SET', KEYS[4], ARGV[5], 'PX', ARGV[3])
    redis.call('PEXPIRE', KEYS[5], ARGV[4])
  end
end
if ARGV[1] == '' then return {'none', ''} end
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {'stale', owner} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
return {'ok', last and last[1] or '0-0'}
";

/// Announces a run under its key. Order numbers are times in microseconds, so they keep increasing
/// even if the last order number is lost.
///
/// Keys: runs, active. Arguments: run, key, expiry.
const ANNOUNCE: &str = r"
local last = redis.call('HMGET', KEYS[1], 'order', 'run')
local previous = last[1] and tonumber(last[1]) or 0
local time = redis.call('TIME')
local order = string.format('%.0f', math.max(previous + 1, time[1] * 1000000 + time[2]))
redis.call('HSET', KEYS[1], 'order', order, 'previous', string.format('%.0f', previous),
  'run', ARGV[1], 'ended', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if last[2] then redis.call('HDEL', KEYS[2], last[2]) end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('PUBLISH', KEYS[1], order)
return order
";

/// Announces a run that has already ended, unless another run for the same key was announced after
/// this run had started.
///
/// Keys: runs. Arguments: run, the microseconds since the start of the run, expiry.
const ANNOUNCE_ENDED: &str = r"
local previous = tonumber(redis.call('HGET', KEYS[1], 'order') or '0')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if previous > now - tonumber(ARGV[2]) then return 0 end
local order = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'order', order, 'previous', string.format('%.0f', previous),
  'run', ARGV[1], 'ended', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PUBLISH', KEYS[1], order)
return 1
";

/// Marks a run as ended.
///
/// Keys: runs, active. Arguments: run, order, expiry.
const END: &str = r"
local last = redis.call('HMGET', KEYS[1], 'order', 'run')
if last[1] == ARGV[2] then
  redis.call('HSET', KEYS[1], 'ended', '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('PUBLISH', KEYS[1], ARGV[2])
end
if last[1] == ARGV[2] or last[2] ~= ARGV[1] then redis.call('HDEL', KEYS[2], ARGV[1]) end
return 1
";

/// Announces a run again after its announcement was lost.
///
/// Keys: runs, active. Arguments: run, key, order, expiry.
const ANNOUNCE_AGAIN: &str = r"
local order = redis.call('HGET', KEYS[1], 'order')
if order and tonumber(order) > tonumber(ARGV[3]) then return 0 end
if order ~= ARGV[3] then
  local last = redis.call('HGET', KEYS[1], 'run')
  if last then redis.call('HDEL', KEYS[2], last) end
  redis.call('HSET', KEYS[1], 'order', ARGV[3], 'previous', '0', 'run', ARGV[1], 'ended', '0')
  redis.call('PUBLISH', KEYS[1], ARGV[3])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1
";

/// Opens an inbox. The inbox's previous owner notices that the token has changed.
///
/// Keys: open, inbox. Arguments: token, lease.
const OPEN: &str = r"
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[2])
redis.call('PUBLISH', KEYS[2], '')
return 1
";

/// Sends a command.
///
/// Keys: open, inbox. Arguments: command, maximum number of waiting commands, expiry, maximum size
/// of the waiting commands.
const SEND: &str = r"
if redis.call('EXISTS', KEYS[1]) == 0 then return 'none' end
local waiting = redis.call('XLEN', KEYS[2])
if waiting >= tonumber(ARGV[2]) then return 'full' end
if waiting > 0 then
  local bytes = redis.call('MEMORY', 'USAGE', KEYS[2], 'SAMPLES', 0)
  if bytes + #ARGV[1] > tonumber(ARGV[4]) then return 'full' end
end
redis.call('XADD', KEYS[2], '*', 'command', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('PUBLISH', KEYS[2], '')
return 'ok'
";

/// Answers a command and removes it from the inbox.
///
/// Keys: inbox, answer. Arguments: id of the entry, answer, channel for answers.
const ANSWER: &str = r"
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2], 'PX', 60000)
redis.call('PUBLISH', ARGV[3], '')
return 1
";

/// Closes an inbox. Commands that are still waiting are not handled.
///
/// Keys: open, inbox. Arguments: token, channel for answers.
const CLOSE: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('PUBLISH', ARGV[2], '')
return 1
";
