#ifndef SOK_CC_BASE_THREAD_ANNOTATIONS_H_
#define SOK_CC_BASE_THREAD_ANNOTATIONS_H_

// What clang's thread-safety analysis (-Wthread-safety) checks: which mutex guards a member, and which
// mutexes a function takes, releases or needs. Other compilers ignore them. tools/lint.sh runs the analysis.
#if defined(__clang__)
#define SOK_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SOK_THREAD_ANNOTATION(x)
#endif

// Of classes: a lock, and an object that holds a lock while it lives.
#define SOK_CAPABILITY(name) SOK_THREAD_ANNOTATION(capability(name))
#define SOK_SCOPED_CAPABILITY SOK_THREAD_ANNOTATION(scoped_lockable)

// Of members: read and written with the mutex held.
#define SOK_GUARDED_BY(mutex) SOK_THREAD_ANNOTATION(guarded_by(mutex))

// Of functions: called with the mutexes held, or without them.
#define SOK_REQUIRES(...) SOK_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SOK_EXCLUDES(...) SOK_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

// Of functions: they take or release the mutexes, or return a reference to one.
#define SOK_ACQUIRE(...) SOK_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SOK_RELEASE(...) SOK_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SOK_RETURN_CAPABILITY(mutex) SOK_THREAD_ANNOTATION(lock_returned(mutex))

// Of functions whose locking the analysis cannot follow, with the reason beside it.
#define SOK_NO_THREAD_SAFETY_ANALYSIS SOK_THREAD_ANNOTATION(no_thread_safety_analysis)

#endif  // SOK_CC_BASE_THREAD_ANNOTATIONS_H_
