// The numbers of records that keep some of them in 16 bits, in kernels. Only .cu files include this header.
#ifndef SOK_CUDA_STORE_RECORD_NUMBERS_H_
#define SOK_CUDA_STORE_RECORD_NUMBERS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/float_types.h"
#include "cc/table/record_layout.h"
#include "cuda/base/floats.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// `type` is float16 or bfloat16. The same for all threads of a warp nearly always, so that branches on it
// cost little.
__device__ __forceinline__ float FromHalf(FloatType type, uint16_t half) {
  return type == FloatType::kFloat16 ? FromFloat16(half) : FromBfloat16(half);
}
// To nearest.
__device__ __forceinline__ uint16_t ToHalf(FloatType type, float value) {
  return type == FloatType::kFloat16 ? ToFloat16(value) : ToBfloat16(value);
}
__device__ __forceinline__ uint16_t ToHalf(FloatType type, float value, uint32_t noise) {
  return type == FloatType::kFloat16 ? ToFloat16(value, noise) : ToBfloat16(value, noise);
}

// A few adjacent numbers of 16 bits: like Floats, one access.
template <int kWidth>
struct Halves {
  uint16_t v[kWidth];
};

template <int kWidth>
__device__ __forceinline__ Halves<kWidth> LoadHalves(const uint16_t* from) {
  if constexpr (kWidth == 4) {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    return {{static_cast<uint16_t>(two.x), static_cast<uint16_t>(two.x >> 16), static_cast<uint16_t>(two.y),
             static_cast<uint16_t>(two.y >> 16)}};
  } else {
    return {{*from}};
  }
}

template <int kWidth>
__device__ __forceinline__ void StoreHalves(const Halves<kWidth>& halves, uint16_t* to) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<uint2*>(to) = make_uint2(halves.v[0] | static_cast<uint32_t>(halves.v[1]) << 16,
                                               halves.v[2] | static_cast<uint32_t>(halves.v[3]) << 16);
  } else {
    *to = halves.v[0];
  }
}

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> FloatsOf(FloatType type, const Halves<kWidth>& halves) {
  Floats<kWidth> floats;
  for (int k = 0; k < kWidth; ++k) floats.v[k] = FromHalf(type, halves.v[k]);
  return floats;
}

// `n` adjacent numbers of any type, at numbers + k * BytesOf(type).

__device__ __forceinline__ float NumberAt(FloatType type, const char* numbers, int64_t k) {
  if (type == FloatType::kFloat32) return reinterpret_cast<const float*>(numbers)[k];
  return FromHalf(type, reinterpret_cast<const uint16_t*>(numbers)[k]);
}

// Rounds to nearest.
__device__ __forceinline__ void SetNumberAt(FloatType type, char* numbers, int64_t k, float value) {
  if (type == FloatType::kFloat32) {
    reinterpret_cast<float*>(numbers)[k] = value;
  } else {
    reinterpret_cast<uint16_t*>(numbers)[k] = ToHalf(type, value);
  }
}

// Calls body(type, numbers, k): float `c` of a record is number k of these numbers.
template <typename Body>
__device__ __forceinline__ auto WithNumber(const RowStoreView& store, char* record, int64_t c,
                                           const Body& body) {
  const int64_t row_slots = store.width - store.shape.row_slots;
  if (c < store.dim) return body(store.shape.weight_type(), record, c);
  if (c < row_slots) {
    return body(store.shape.slot_type(), record + store.shape.SlotsAt(store.dim), c - store.dim);
  }
  return body(FloatType::kFloat32, record + store.shape.RowSlotsAt(store.dim, store.width), c - row_slots);
}

// Float `c` of a record, one of store.width.
__device__ __forceinline__ float ReadNumber(const RowStoreView& store, char* record, int64_t c) {
  return WithNumber(store, record, c, [](FloatType type, const char* numbers, int64_t k) {
    return NumberAt(type, numbers, k);
  });
}

// Rounds to nearest.
__device__ __forceinline__ void WriteNumber(const RowStoreView& store, char* record, int64_t c, float value) {
  WithNumber(store, record, c,
             [value](FloatType type, char* numbers, int64_t k) { SetNumberAt(type, numbers, k, value); });
}

// Writes the stream of a record, if it has one.
__device__ __forceinline__ void WriteStream(const RowStoreView& store, uint64_t seed, int64_t key,
                                            char* record) {
  if (!store.shape.has_stream) return;
  *reinterpret_cast<uint32_t*>(record + store.shape.StreamAt(store.dim, store.width)) =
      RoundingStream(key, seed);
}

}  // namespace sok

#endif  // SOK_CUDA_STORE_RECORD_NUMBERS_H_
