#ifndef SOK_CC_BASE_SPAN_H_
#define SOK_CC_BASE_SPAN_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#ifdef SOK_CHECK_BOUNDS
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#endif

namespace sok {

// In sanitized builds (SOK_CHECK_BOUNDS) an index out of a Span's bounds ends the process: sanitizers detect
// it only if the index is also outside of the allocation. Other builds check nothing.
namespace span_internal {
#ifdef SOK_CHECK_BOUNDS
constexpr void CheckRange(int64_t first, int64_t count, int64_t size) {
  if (first >= 0 && count >= 0 && first <= size - count) return;
  std::fprintf(stderr,
               "Span of %" PRId64 " elements: %" PRId64 " from %" PRId64 " on are out of its bounds\n", size,
               count, first);
  std::abort();
}
#else
constexpr void CheckRange(int64_t, int64_t, int64_t) {}
#endif
}  // namespace span_internal

// A view of `size` consecutive elements owned by someone else. Copying it copies the view.
//
// C++17 has no std::span, and abseil's cannot be used below sok_ops/, because each TensorFlow wheel contains
// a different version of abseil.
template <typename T>
class Span {
 public:
  using value_type = std::remove_cv_t<T>;

  constexpr Span() = default;
  constexpr Span(T* data, int64_t size) : data_(data), size_(size) {}
  // From anything with data() and size() of a compatible element type: a vector, an array, Span<T>.
  template <typename C,
            typename = std::enable_if_t<std::is_convertible_v<decltype(std::declval<C&>().data()), T*>>>
  constexpr Span(C& c) : data_(c.data()), size_(static_cast<int64_t>(c.size())) {}  // NOLINT
  template <typename C,
            typename = std::enable_if_t<std::is_convertible_v<decltype(std::declval<const C&>().data()), T*>>>
  constexpr Span(const C& c) : data_(c.data()), size_(static_cast<int64_t>(c.size())) {}  // NOLINT

  constexpr T* data() const { return data_; }
  constexpr int64_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  constexpr T& operator[](int64_t i) const {
    span_internal::CheckRange(i, 1, size_);
    return data_[i];
  }

  // The `count` elements from `first` on; the caller keeps both within size().
  constexpr Span subspan(int64_t first, int64_t count) const {
    span_internal::CheckRange(first, count, size_);
    return Span(data_ + first, count);
  }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_BASE_SPAN_H_
