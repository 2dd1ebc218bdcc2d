#ifndef SOK_CC_BASE_THREAD_ANNOTATIONS_H_
#define SOK_CC_BASE_THREAD_ANNOTATIONS_H_

// Annotations that clang's thread-safety analysis (-Wthread-safety) checks: which mutex guards a member, and
// which mutexes a function acquires, releases or needs. Other compilers ignore them. tools/lint.sh runs the
// analysis.
#if defined(__clang__)
#define SOK_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SOK_THREAD_ANNOTATION(x)
#endif

// For classes: a lock, and an object that holds a lock while it lives.
#define SOK_CAPABILITY(name) SOK_THREAD_ANNOTATION(capability(name))
#define SOK_SCOPED_CAPABILITY SOK_THREAD_ANNOTATION(scoped_lockable)

// For members: read and written with the mutex held.
#define SOK_GUARDED_BY(mutex) SOK_THREAD_ANNOTATION(guarded_by(mutex))

// For functions: must be called with the mutexes held, or without them.
#define SOK_REQUIRES(...) SOK_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SOK_EXCLUDES(...) SOK_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

// For functions that acquire or release the mutexes, or return a reference to one.
#define SOK_ACQUIRE(...) SOK_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SOK_RELEASE(...) SOK_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SOK_RETURN_CAPABILITY(mutex) SOK_THREAD_ANNOTATION(lock_returned(mutex))

// For functions whose locking the analysis cannot follow; a comment gives the reason.
#define SOK_NO_THREAD_SAFETY_ANALYSIS SOK_THREAD_ANNOTATION(no_thread_safety_analysis)

#endif  // SOK_CC_BASE_THREAD_ANNOTATIONS_H_
