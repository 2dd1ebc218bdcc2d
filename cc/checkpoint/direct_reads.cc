#include "cc/checkpoint/direct_reads.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace sok {
namespace {

// What O_DIRECT wants offsets, lengths and memory to be multiples of, on all disks.
constexpr int64_t kDirectAlignment = 4096;
// One page more, for bytes that do not begin at a multiple of the alignment.
constexpr int64_t kBufferBytes = DirectReads::kMostBytes + kDirectAlignment;

int64_t AlignedDown(int64_t offset) { return offset / kDirectAlignment * kDirectAlignment; }

// The bytes that are read for `bytes` at `offset`.
int64_t AlignedBytes(int64_t offset, int64_t bytes) {
  return AlignedDown(offset + bytes + kDirectAlignment - 1) - AlignedDown(offset);
}

}  // namespace

std::unique_ptr<DirectReads> DirectReads::Create(int descriptor) {
  auto memory = PageBuffer::Allocate(kMostReads * kBufferBytes);
  if (!memory.ok()) return nullptr;
  // The same file, whatever its name stands for now.
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  std::unique_ptr<DirectReads> reads(
      new DirectReads(open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC), std::move(memory.value())));
  // The first ones are taken first, and again, so that few take memory.
  for (int number = kMostReads - 1; number >= 0; --number) reads->spare_.push_back(number);
  const bool exist = reads->descriptor_ >= 0 && syscall(SYS_io_setup, kMostReads, &reads->context_) == 0;
  return exist ? std::move(reads) : nullptr;
}

DirectReads::~DirectReads() {
  if (context_ != 0) syscall(SYS_io_destroy, context_);
  if (descriptor_ >= 0) close(descriptor_);
}

bool DirectReads::Start(int64_t offset, int64_t bytes) {
  const MutexLock lock(mutex_);
  const std::pair<int64_t, int64_t> range(offset, bytes);
  if (reads_.count(range) > 0) return true;
  if (is_refused_ || bytes > kMostBytes || spare_.empty()) return false;
  auto read = std::make_unique<Read>();
  read->buffer = spare_.back();
  read->request.aio_data = reinterpret_cast<uintptr_t>(read.get());
  read->request.aio_lio_opcode = IOCB_CMD_PREAD;
  read->request.aio_fildes = static_cast<uint32_t>(descriptor_);
  read->request.aio_buf = reinterpret_cast<uintptr_t>(Buffer(read->buffer));
  read->request.aio_nbytes = static_cast<uint64_t>(AlignedBytes(offset, bytes));
  read->request.aio_offset = AlignedDown(offset);
  iocb* request = &read->request;
  const auto place = reads_.emplace(range, std::move(read)).first;
  if (syscall(SYS_io_submit, context_, 1, &request) == 1) {
    spare_.pop_back();
    return true;
  }
  is_refused_ = errno != EAGAIN;
  reads_.erase(place);
  return false;
}

bool DirectReads::Take(int64_t offset, int64_t bytes, void* data) {
  const int64_t before = offset - AlignedDown(offset);
  std::unique_ptr<Read> read;
  {
    const MutexLock lock(mutex_);
    const auto place = reads_.find({offset, bytes});
    if (place == reads_.end()) return false;
    while (!place->second->is_done) {
      if (!NoteDone()) return false;
    }
    read = std::move(place->second);
    reads_.erase(place);
    if (read->result == -EINVAL) is_refused_ = true;
  }
  const bool has_all = read->result >= before + bytes;
  if (has_all) std::memcpy(data, Buffer(read->buffer) + before, static_cast<size_t>(bytes));
  const MutexLock lock(mutex_);
  spare_.push_back(read->buffer);
  return has_all;
}

bool DirectReads::NoteDone() {
  io_event events[kMostReads];
  const int64_t count = syscall(SYS_io_getevents, context_, 1, kMostReads, events, nullptr);
  if (count < 0) return errno == EINTR;
  for (int64_t i = 0; i < count; ++i) {
    auto* const read = reinterpret_cast<Read*>(events[i].data);
    read->is_done = true;
    read->result = events[i].res;
  }
  return true;
}

char* DirectReads::Buffer(int number) const {
  return static_cast<char*>(memory_.data()) + number * kBufferBytes;
}

}  // namespace sok
