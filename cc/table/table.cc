#include "cc/table/table.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "cc/base/hash.h"

namespace sok {
namespace {

// Expected cost of looking up an id, and of making one float of an initial row.
constexpr int64_t kFindNs = 25;
constexpr int64_t kInitialValueNs = 4;

}  // namespace

StatusOr<std::unique_ptr<Table>> Table::Create(Executor& executor, TableOptions options) {
  const std::string& name = options.name;
  if (options.dim < 1 || options.dim > kMaxDim) {
    return InvalidArgument("Embedding variable '", name, "': dim must be in [1, ", kMaxDim, "], not ",
                           options.dim);
  }
  if (options.capacity < 0) {
    return InvalidArgument("Embedding variable '", name, "': capacity must not be negative, but is ",
                           options.capacity);
  }
  if (!options.use_hashtable && options.capacity == 0) {
    return InvalidArgument("Embedding variable '", name, "': use_hashtable=False needs a capacity");
  }
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    return InvalidArgument("Embedding variable '", name, "': rank ", options.rank, " of ", options.ranks);
  }
  std::unique_ptr<Table> table(new Table(std::move(options)));
  SOK_RETURN_IF_ERROR(table->FillDirectRows(executor));
  return table;
}

Table::Table(TableOptions options)
    : options_(std::move(options)),
      definition_fingerprint_(Fingerprint64(Describe(options_))),
      store_(options_.dim) {}

int64_t Table::bytes() const { return store_.bytes() + index_.bytes(); }

Status Table::Find(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows) const {
  if (options_.use_hashtable) {
    executor.ParallelFor(ids.size(), kFindNs, [&](int64_t begin, int64_t end) {
      index_.Find(ids.subspan(begin, end - begin), rows.subspan(begin, end - begin));
    });
    return OkStatus();
  }
  const uint64_t limit = static_cast<uint64_t>(options_.capacity) * static_cast<uint64_t>(options_.ranks);
  for (int64_t i = 0; i < ids.size(); ++i) {
    const uint64_t key = static_cast<uint64_t>(ids[i]);
    if (key >= limit) {
      return InvalidArgument("Embedding variable '", options_.name, "' has no row for key ", ids[i],
                             ": without a hash table keys are in [0, ", limit, ")");
    }
    rows[i] = static_cast<int64_t>(key / static_cast<uint64_t>(options_.ranks));
  }
  return OkStatus();
}

Status Table::FindOrInsert(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows) {
  SOK_RETURN_IF_ERROR(Find(executor, ids, rows));
  const int64_t absent = std::count(rows.begin(), rows.end(), kAbsent);
  return absent == 0 ? OkStatus() : InsertAbsent(executor, ids, rows, absent);
}

Status Table::InsertAbsent(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows, int64_t absent) {
  if (options_.capacity > 0 && num_rows_ + absent > options_.capacity) {
    return ResourceExhausted("Embedding variable '", options_.name, "' is full: it holds ", num_rows_,
                             " of at most ", options_.capacity, " rows on rank ", options_.rank,
                             ", without room for ", absent, " new keys");
  }
  SOK_RETURN_IF_ERROR(Reserve(num_rows_ + absent));
  std::vector<int64_t> new_ids;
  std::vector<int64_t> new_rows;
  new_ids.reserve(absent);
  new_rows.reserve(absent);
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (rows[i] != kAbsent) continue;
    rows[i] = num_rows_ + static_cast<int64_t>(new_rows.size());
    new_ids.push_back(ids[i]);
    new_rows.push_back(rows[i]);
  }
  SOK_RETURN_IF_ERROR(index_.Insert(new_ids, new_rows));
  num_rows_ += absent;
  executor.ParallelFor(absent, kInitialValueNs * options_.dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      InitialRow(new_ids[i], Span<float>(weights(new_rows[i]), options_.dim));
      store_.FillSlots(new_rows[i]);
    }
  });
  if (optimizer_ != nullptr) {
    for (int64_t row : new_rows) optimizer_->OnNewRow(row);
  }
  return OkStatus();
}

Status Table::Reserve(int64_t rows) {
  // Doubling keeps the number of reservations small; a bound tells what is never needed.
  int64_t wanted = std::max(rows, std::min(2 * num_rows_, rows + (int64_t{1} << 20)));
  if (options_.capacity > 0) wanted = std::min(wanted, options_.capacity);
  Status status = store_.Reserve(wanted);
  if (status.ok()) status = index_.Reserve(rows);
  if (status.ok() && optimizer_ != nullptr) status = optimizer_->Reserve(wanted);
  if (status.ok()) return status;
  return Status(status.code(), StrCat("Embedding variable '", options_.name, "' with ", num_rows_,
                                      " rows: ", status.message()));
}

Status Table::FillDirectRows(Executor& executor) {
  if (options_.use_hashtable) return OkStatus();
  SOK_RETURN_IF_ERROR(Reserve(options_.capacity));
  num_rows_ = options_.capacity;
  executor.ParallelFor(num_rows_, kInitialValueNs * options_.dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      InitialRow(row * options_.ranks + options_.rank, Span<float>(weights(row), options_.dim));
      store_.FillSlots(row);
    }
  });
  return OkStatus();
}

Status Table::Assign(Executor& executor, Span<const int64_t> keys, const float* values) {
  std::vector<int64_t> own;
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (OwnerOf(keys[i], options_.ranks) != options_.rank) continue;
    own.push_back(keys[i]);
    positions.push_back(i);
  }
  std::vector<int64_t> rows(own.size());
  SOK_RETURN_IF_ERROR(FindOrInsert(executor, own, Span<int64_t>(rows)));
  // A row with postponed steps must not take them after it got its new weights.
  BringUpToDate(executor, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(values + positions[i] * options_.dim, options_.dim, weights(rows[i]));
  }
  return OkStatus();
}

std::vector<int64_t> Table::Keys() const {
  std::vector<int64_t> keys(num_rows_);
  if (options_.use_hashtable) {
    index_.ForEach([&](int64_t id, int64_t row) { keys[row] = id; });
  } else {
    for (int64_t row = 0; row < num_rows_; ++row) keys[row] = row * options_.ranks + options_.rank;
  }
  return keys;
}

}  // namespace sok
