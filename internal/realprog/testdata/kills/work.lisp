;;; For each number N that it reads: N rounds of threads, processes, conditions and garbage.
(defun words (n) (loop for k from 1 to n sum (length (princ-to-string k))))
(defun play (n)
  (loop for i from 0 below n
        sum (let ((threads (loop for k from 1 to 4
                                 collect (let ((k k)) (sb-thread:make-thread (lambda () (words (* 100 k))))))))
              (let ((code (sb-ext:process-exit-code
                           (sb-ext:run-program "/bin/sh" (list "-c" (format nil "exit ~d" (mod i 7)))))))
                (unless (= code (mod i 7)) (format t "wrong ~d~%" code) (finish-output) (sb-ext:exit :code 1)))
              (when (zerop (mod i 5)) (sb-ext:gc))
              (+ (reduce #'+ (mapcar #'sb-thread:join-thread threads))
                 (handler-case (error "ball") (error () i))))))
(loop for line = (read-line *standard-input* nil)
      while line
      do (let ((n (parse-integer line)))
           (format t "ran ~d ~d~%" n (play n))
           (finish-output)))
