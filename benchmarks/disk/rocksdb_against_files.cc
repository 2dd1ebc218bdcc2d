// Measures what could hold the rows that memory has no room for: RocksDB, a file with a place for each row,
// and a file to whose end rows are appended. docs/decisions/tables-on-disk.md has what it printed.
//
// It is not built with the library, which does not need RocksDB (Debian: librocksdb-dev):
//   g++ -std=c++17 -O2 benchmarks/disk/rocksdb_against_files.cc -o rocksdb_against_files -lrocksdb -pthread
//   ./rocksdb_against_files ROWS BYTES_OF_A_ROW ROWS_A_STEP STEPS FOLDER
// In each step two threads read some rows at random, and write others. The contenders take turns.
#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 2;

struct Job {
  int64_t rows;
  int64_t bytes;
  int64_t batch;
  int steps;
  std::string folder;
};

void Check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

void OnThreads(int64_t n, const std::function<void(int64_t begin, int64_t end)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { body(n * t / kThreads, n * (t + 1) / kThreads); });
  }
  for (std::thread& thread : threads) thread.join();
}

int OpenFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  Check(file >= 0, path.c_str());
  return file;
}

// Where rows are. Row i of a call is at data + i * bytes.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual const char* name() const = 0;
  virtual void Read(const std::vector<int64_t>& rows, char* data) = 0;
  virtual void Write(const std::vector<int64_t>& rows, const char* data) = 0;
};

class FileWithPlaces final : public Contender {
 public:
  explicit FileWithPlaces(const Job& job) : bytes_(job.bytes), file_(OpenFile(job.folder + "/places")) {}
  const char* name() const override { return "file, a place each"; }
  void Read(const std::vector<int64_t>& rows, char* data) override {
    OnThreads(rows.size(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Check(pread(file_, data + i * bytes_, bytes_, rows[i] * bytes_) == bytes_, "pread");
      }
    });
  }
  void Write(const std::vector<int64_t>& rows, const char* data) override {
    OnThreads(rows.size(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Check(pwrite(file_, data + i * bytes_, bytes_, rows[i] * bytes_) == bytes_, "pwrite");
      }
    });
  }

 private:
  const int64_t bytes_;
  const int file_;
};

class AppendedFile final : public Contender {
 public:
  explicit AppendedFile(const Job& job)
      : bytes_(job.bytes), file_(OpenFile(job.folder + "/log")), places_(job.rows) {}
  const char* name() const override { return "file, appended to"; }
  void Read(const std::vector<int64_t>& rows, char* data) override {
    OnThreads(rows.size(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Check(pread(file_, data + i * bytes_, bytes_, places_[rows[i]]) == bytes_, "pread");
      }
    });
  }
  void Write(const std::vector<int64_t>& rows, const char* data) override {
    OnThreads(rows.size(), [&](int64_t begin, int64_t end) {
      const int64_t bytes = (end - begin) * bytes_;
      Check(pwrite(file_, data + begin * bytes_, bytes, end_ + begin * bytes_) == bytes, "pwrite");
      for (int64_t i = begin; i < end; ++i) places_[rows[i]] = end_ + i * bytes_;
    });
    end_ += static_cast<int64_t>(rows.size()) * bytes_;
  }

 private:
  const int64_t bytes_;
  const int file_;
  std::vector<int64_t> places_;
  int64_t end_ = 0;
};

class RocksDb final : public Contender {
 public:
  explicit RocksDb(const Job& job) : bytes_(job.bytes) {
    rocksdb::BlockBasedTableOptions table;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.block_cache = rocksdb::NewLRUCache(64 << 20);  // the page cache has the rest, as for files
    table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options.IncreaseParallelism(kThreads);
    rocksdb::DB* opened = nullptr;
    Check(rocksdb::DB::Open(options, job.folder + "/rocksdb", &opened).ok(), "open");
    db_.reset(opened);
    unlogged_.disableWAL = true;  // the rows are not a durable copy
  }
  const char* name() const override { return "RocksDB"; }
  void Read(const std::vector<int64_t>& rows, char* data) override {
    OnThreads(rows.size(), [&](int64_t begin, int64_t end) {
      const int64_t n = end - begin;
      std::vector<uint64_t> numbers(n);
      std::vector<rocksdb::Slice> keys(n);
      std::vector<rocksdb::PinnableSlice> values(n);
      std::vector<rocksdb::Status> found(n);
      for (int64_t i = 0; i < n; ++i) keys[i] = KeyOf(rows[begin + i], &numbers[i]);
      db_->MultiGet({}, db_->DefaultColumnFamily(), n, keys.data(), values.data(), found.data());
      for (int64_t i = 0; i < n; ++i) {
        Check(found[i].ok(), "MultiGet");
        std::copy_n(values[i].data(), bytes_, data + (begin + i) * bytes_);
      }
    });
  }
  void Write(const std::vector<int64_t>& rows, const char* data) override {
    OnThreads(rows.size(), [&](int64_t begin, int64_t end) {
      rocksdb::WriteBatch batch;
      for (int64_t i = begin; i < end; ++i) {
        uint64_t number;
        Check(batch.Put(KeyOf(rows[i], &number), rocksdb::Slice(data + i * bytes_, bytes_)).ok(), "Put");
      }
      Check(db_->Write(unlogged_, &batch).ok(), "Write");
    });
  }

 private:
  static rocksdb::Slice KeyOf(int64_t row, uint64_t* number) {
    *number = __builtin_bswap64(static_cast<uint64_t>(row));
    return {reinterpret_cast<const char*>(number), sizeof(*number)};
  }

  const int64_t bytes_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions unlogged_;
};

double ProcessorSeconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// Wall time of each call, and the processor time of all.
struct Times {
  std::vector<double> wall;
  double processor = 0.0;

  void Measure(const std::function<void()>& call) {
    const double before = ProcessorSeconds();
    const auto begin = std::chrono::steady_clock::now();
    call();
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    processor += ProcessorSeconds() - before;
  }
  double median() {
    std::sort(wall.begin(), wall.end());
    return wall[wall.size() / 2];
  }
};

std::vector<int64_t> SomeRows(const Job& job, std::mt19937_64* random) {
  std::vector<int64_t> rows;
  while (static_cast<int64_t>(rows.size()) < job.batch) {
    while (static_cast<int64_t>(rows.size()) < job.batch) rows.push_back((*random)() % job.rows);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s ROWS BYTES_OF_A_ROW ROWS_A_STEP STEPS FOLDER\n", argv[0]);
    return 2;
  }
  const Job job = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoi(argv[4]),
                   argv[5]};
  FileWithPlaces places(job);
  AppendedFile appended(job);
  RocksDb rocksdb(job);
  std::vector<Contender*> contenders = {&places, &appended, &rocksdb};
  std::vector<char> data(job.batch * job.bytes, 'x');
  for (Contender* contender : contenders) {
    Times filling;
    filling.Measure([&] {
      for (int64_t first = 0; first < job.rows; first += job.batch) {
        std::vector<int64_t> rows(std::min(job.batch, job.rows - first));
        for (size_t i = 0; i < rows.size(); ++i) rows[i] = first + static_cast<int64_t>(i);
        contender->Write(rows, data.data());
      }
    });
    std::printf("%-20s filled in %.1f s, processor %.1f s\n", contender->name(), filling.median(),
                filling.processor);
  }
  std::vector<Times> reads(contenders.size());
  std::vector<Times> writes(contenders.size());
  std::mt19937_64 random(1);
  for (int step = 0; step < job.steps; ++step) {
    const std::vector<int64_t> up = SomeRows(job, &random);
    const std::vector<int64_t> down = SomeRows(job, &random);
    for (size_t c = 0; c < contenders.size(); ++c) {
      reads[c].Measure([&] { contenders[c]->Read(up, data.data()); });
      writes[c].Measure([&] { contenders[c]->Write(down, data.data()); });
    }
  }
  for (size_t c = 0; c < contenders.size(); ++c) {
    const double ns = 1e9 / static_cast<double>(job.batch);
    const double steps = job.steps;
    std::printf("%-20s ns a row (median; processor): read %.0f %.0f, write %.0f %.0f\n",
                contenders[c]->name(), reads[c].median() * ns, reads[c].processor * ns / steps,
                writes[c].median() * ns, writes[c].processor * ns / steps);
  }
  return 0;
}
