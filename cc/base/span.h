#ifndef SOK_CC_BASE_SPAN_H_
#define SOK_CC_BASE_SPAN_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace sok {

// A view of `size` consecutive elements owned by someone else. Copying it copies the view.
//
// C++17 has no std::span, and abseil's cannot be used below sok_ops/: TensorFlow's wheel carries its own
// abseil, of another version for each TensorFlow.
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
  constexpr T& operator[](int64_t i) const { return data_[i]; }

  // The `count` elements from `first` on; the caller keeps both within size().
  constexpr Span subspan(int64_t first, int64_t count) const { return Span(data_ + first, count); }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_BASE_SPAN_H_
