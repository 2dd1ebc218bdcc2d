#include "cc/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sok {
namespace {

// The polynomial with its bits reversed, as in all tables here.
constexpr uint32_t kPolynomial = 0x82f63b78u;

// tables[k][b] is the checksum's change by the byte b that is followed by k zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t zeros = 1; zeros < 8; ++zeros) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[zeros - 1][byte];
      tables[zeros][byte] = (before >> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

#if defined(__x86_64__)
// The instruction takes three cycles, but another can begin in each. So three lanes of bytes are worked on at
// the same time, and then put together.
constexpr int64_t kLane = 128;

// tables[k][b] is what becomes of byte k = b of a checksum when kLane zero bytes follow.
using LaneTables = std::array<std::array<uint32_t, 256>, 4>;

constexpr LaneTables MakeLaneTables() {
  LaneTables tables{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = uint32_t{1} << bit;
    for (int64_t zero = 0; zero < kLane; ++zero) crc = (crc >> 8) ^ kTables[0][crc & 255];
    for (size_t byte = 0; byte < 256; ++byte) {
      if ((byte >> (bit % 8) & 1) != 0) tables[bit / 8][byte] ^= crc;
    }
  }
  return tables;
}

constexpr LaneTables kLaneTables = MakeLaneTables();

uint32_t BeforeLane(uint64_t crc) {
  return kLaneTables[0][crc & 255] ^ kLaneTables[1][crc >> 8 & 255] ^ kLaneTables[2][crc >> 16 & 255] ^
         kLaneTables[3][crc >> 24 & 255];
}

uint64_t WordAt(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t Crc32cByInstruction(const void* data, int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  uint64_t crc = ~uint32_t{0};
  for (; bytes >= 3 * kLane; bytes -= 3 * kLane, next += 3 * kLane) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (int64_t i = 0; i < kLane; i += 8) {
      crc = _mm_crc32_u64(crc, WordAt(next + i));
      second = _mm_crc32_u64(second, WordAt(next + kLane + i));
      third = _mm_crc32_u64(third, WordAt(next + 2 * kLane + i));
    }
    crc = BeforeLane(BeforeLane(crc) ^ second) ^ third;
  }
  for (; bytes >= 8; bytes -= 8, next += 8) crc = _mm_crc32_u64(crc, WordAt(next));
  uint32_t last = static_cast<uint32_t>(crc);
  for (; bytes > 0; --bytes, ++next) last = _mm_crc32_u8(last, static_cast<unsigned char>(*next));
  return ~last;
}
#endif

// a * b modulo the polynomial, where bit 31 is the coefficient of x^0.
uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

}  // namespace

uint32_t PortableCrc32c(const void* data, int64_t bytes) {
  const unsigned char* next = static_cast<const unsigned char*>(data);
  uint32_t crc = ~uint32_t{0};
  for (; bytes >= 8; bytes -= 8, next += 8) {
    const uint32_t low =
        crc ^ (next[0] | uint32_t{next[1]} << 8 | uint32_t{next[2]} << 16 | uint32_t{next[3]} << 24);
    crc = kTables[7][low & 255] ^ kTables[6][low >> 8 & 255] ^ kTables[5][low >> 16 & 255] ^
          kTables[4][low >> 24] ^ kTables[3][next[4]] ^ kTables[2][next[5]] ^ kTables[1][next[6]] ^
          kTables[0][next[7]];
  }
  for (; bytes > 0; --bytes, ++next) crc = (crc >> 8) ^ kTables[0][(crc ^ *next) & 255];
  return ~crc;
}

uint32_t Crc32c(const void* data, int64_t bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return Crc32cByInstruction(data, bytes);
#endif
  return PortableCrc32c(data, bytes);
}

uint32_t CombineCrc32c(uint32_t of_a, uint32_t of_b, int64_t bytes_of_b) {
  uint32_t power = uint32_t{1} << 23;  // x^8: one byte
  uint32_t shift = uint32_t{1} << 31;  // x^0
  for (uint64_t left = static_cast<uint64_t>(bytes_of_b); left != 0; left >>= 1) {
    if ((left & 1) != 0) shift = Multiply(shift, power);
    power = Multiply(power, power);
  }
  return Multiply(shift, of_a) ^ of_b;
}

}  // namespace sok
